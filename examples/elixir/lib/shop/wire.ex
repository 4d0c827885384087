defmodule Shop.Wire do
  @moduledoc """
  A line protocol on `:weir_socket`: a client sends the name of an item, and gets its price.

  The sockets are used through `:gen_tcp`, which takes them as they are, so only `listen` names `:weir_socket`.
  """
  use GenServer

  def start_link(opts), do: GenServer.start_link(__MODULE__, opts, name: __MODULE__)

  @doc "The port that it listens on."
  def port, do: GenServer.call(__MODULE__, :port)

  @impl true
  def init(opts) do
    # As in gen_tcp, five connections may wait to be accepted unless told otherwise.
    options = [:binary, packet: :line, active: false, reuseaddr: true, ip: :loopback, backlog: 1024]

    with {:ok, listener} <- :weir_socket.listen(Keyword.get(opts, :port, 0), options),
         {:ok, port} <- :inet.port(listener) do
      # They end with this process, and so do the sockets, which belong to them.
      for _ <- 1..2, do: spawn_link(fn -> accept(listener) end)
      {:ok, port}
    else
      {:error, reason} -> {:stop, reason}
    end
  end

  @impl true
  def handle_call(:port, _from, port), do: {:reply, port, port}

  defp accept(listener) do
    {:ok, socket} = :gen_tcp.accept(listener)
    {:ok, pid} = Task.start(fn -> receive(do: (:yours -> serve(socket))) end)

    case :gen_tcp.controlling_process(socket, pid) do
      :ok -> send(pid, :yours)
      # Closed already.
      {:error, _} -> Process.exit(pid, :kill)
    end

    accept(listener)
  end

  defp serve(socket) do
    with {:ok, line} <- :gen_tcp.recv(socket, 0),
         {:ok, price} <- Shop.Prices.price(String.trim(line)),
         :ok <- :gen_tcp.send(socket, "#{price}\n") do
      serve(socket)
    else
      {:error, _closed} -> :gen_tcp.close(socket)
    end
  end
end
