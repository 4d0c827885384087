defmodule Shop.WireTest do
  use ExUnit.Case

  test "prices over a socket" do
    options = [:binary, packet: :line, active: false]
    {:ok, socket} = :weir_socket.connect("localhost", Shop.Wire.port(), options, 5000)
    :ok = :gen_tcp.send(socket, "tea\ncoffee\n")
    assert {:ok, "130\n"} = :gen_tcp.recv(socket, 0, 5000)
    assert {:ok, "160\n"} = :gen_tcp.recv(socket, 0, 5000)
    :ok = :gen_tcp.close(socket)
  end

  test "a hundred clients" do
    for _ <- 1..100 do
      Task.async(fn ->
        {:ok, socket} = :weir_socket.connect("127.0.0.1", Shop.Wire.port(), [:binary, packet: :line, active: true])
        :ok = :gen_tcp.send(socket, "tea\n")
        assert_receive {:tcp, ^socket, "130\n"}, 10_000
        :gen_tcp.close(socket)
      end)
    end
    |> Task.await_many(20_000)
  end

  test "a path as an Elixir string" do
    path = Path.join(System.tmp_dir!(), "shop-#{System.unique_integer([:positive])}-#{System.pid()}.sock")
    {:ok, listener} = :weir_socket.listen(0, [:binary, active: false, ip: {:local, path}])
    on_exit(fn -> File.rm(path) end)
    {:ok, client} = :weir_socket.connect({:local, path}, 0, [:binary, active: false])
    {:ok, socket} = :gen_tcp.accept(listener, 5000)
    :ok = :gen_tcp.send(client, "hello")
    assert {:ok, "hello"} = :gen_tcp.recv(socket, 5, 5000)
  end
end
