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
end

# A memcached for the tests, which ends with this node.
{:ok, _} = Application.ensure_all_started(:weir_memcached_server)
{:ok, server} = :weir_memcached_server.start_link(port: 0)
port = :weir_memcached_server.port(server)
Application.put_env(:shop, :memcached, host: "localhost", port: port)

File.rm_rf!(Application.fetch_env!(:shop, :log_dir))
{:ok, _} = Application.ensure_all_started(:shop)

# The console is for ExUnit; Weir's handler gets everything. Elixir's own handler is called Logger before 1.15.
for id <- [:default, Logger], id in :logger.get_handler_ids() do
  :ok = :logger.set_handler_config(id, :level, :critical)
end

ExUnit.start()
