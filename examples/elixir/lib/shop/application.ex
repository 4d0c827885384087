defmodule Shop.Application do
  @moduledoc "Weir's parts as children of a supervisor. The modules beside this one use them."
  use Application

  @impl true
  def start(_type, _args) do
    log_dir = Application.fetch_env!(:shop, :log_dir)
    :ok = add_log_file(Path.join(log_dir, "shop.log"))

    children = [
      # A log of many processes in one file.
      {:weir_log,
       name: :audit,
       file: Path.join(log_dir, "audit.log"),
       newline: true,
       rotate: [interval: :daily, keep_files: 7, gzip: true]},

      # Workers that share the calls, and workers that are claimed one at a time: a GenServer is a worker as it is.
      {:weir_pool, name: :prices, size: System.schedulers_online(), worker: {Shop.Prices, :start_link, [[]]}},
      {:weir_pool, name: :printers, size: 2, worker: {Shop.Printer, :start_link, [[]]}, max_queue: 100},

      # A memcached client. It connects by itself, now or when there is a memcached.
      {:weir_memcached, [name: :carts, connections: 2] ++ Application.fetch_env!(:shop, :memcached)},

      # Servers of our own.
      Shop.Stock,
      Shop.Orders,
      Shop.Mailer,
      {Shop.Wire, port: Application.fetch_env!(:shop, :wire_port)}
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: Shop.Supervisor)
  end

  @impl true
  def stop(_state), do: :logger.remove_handler(:shop_file)

  # What Logger writes goes to a file as well. From Elixir 1.15 on, config/config.exs can do that without code:
  #
  #     config :logger, :default_handler, module: :weir_log_h, config: [file: "log/shop.log"]
  defp add_log_file(file) do
    config = [file: file, rotate: [max_bytes: 10_000_000, keep_files: 5], rate: [debug: 1000]]

    case :logger.add_handler(:shop_file, :weir_log_h, %{config: config}) do
      :ok -> :ok
      # Of a start before this one that failed.
      {:error, {:already_exist, :shop_file}} -> :ok
      {:error, reason} -> {:error, reason}
    end
  end
end
