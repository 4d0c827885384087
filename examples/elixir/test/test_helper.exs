defmodule Shop.Test do
  @moduledoc "What the tests share."

  @doc "Waits until the function gives something true, and gives that."
  def eventually(fun, tries \\ 2000) do
    case fun.() do
      result when result in [nil, false] and tries > 0 ->
        receive after: (10 -> eventually(fun, tries - 1))

      result ->
        result || raise "not so after 20 s"
    end
  end

  @doc "Makes a process wait in `fun` until it is told to go on. Returns what tells it."
  def hold(start) do
    test = self()

    wait = fn ->
      send(test, {:held, self()})
      receive(do: (:go_on -> :ok))
    end

    pid = spawn(fn -> start.(wait) end)
    receive(do: ({:held, held} -> {pid, fn -> send(held, :go_on) end}))
  end

  @doc "A memcached of the tests' own, which ends with this node. `nil`: there is none on this machine."
  def start_memcached do
    with memcached when memcached != nil <- System.find_executable("memcached") do
      {:ok, socket} = :gen_tcp.listen(0, ip: :loopback)
      {:ok, port} = :inet.port(socket)
      :ok = :gen_tcp.close(socket)
      # The shell reads until this node is gone. memcached does not run as root unless told to.
      script = "#{memcached} -l 127.0.0.1 -p #{port} -U 0 -u $(id -un) & trap 'kill $!' EXIT; read -r _"
      Port.open({:spawn_executable, "/bin/sh"}, args: ["-c", script])
      eventually(fn -> match?({:ok, _}, :gen_tcp.connect(~c"localhost", port, [])) end)
      port
    end
  end
end

memcached = Shop.Test.start_memcached()
if memcached, do: Application.put_env(:shop, :memcached, host: "localhost", port: memcached)
unless memcached, do: IO.puts("There is no memcached: the tests that need one are left out.")

File.rm_rf!(Application.fetch_env!(:shop, :log_dir))
{:ok, _} = Application.ensure_all_started(:shop)

# The console is for ExUnit; Weir's handler gets everything. Elixir's own handler is called Logger before 1.15.
for id <- [:default, Logger], id in :logger.get_handler_ids() do
  :ok = :logger.set_handler_config(id, :level, :critical)
end

ExUnit.start(exclude: if(memcached, do: [], else: [:memcached]))
