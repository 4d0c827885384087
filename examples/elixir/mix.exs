defmodule Shop.MixProject do
  use Mix.Project

  def project do
    [
      app: :shop,
      version: "0.1.0",
      elixir: "~> 1.14",
      deps: deps(),
      # test/test_helper.exs starts a memcached before the application.
      aliases: [test: "test --no-start"]
    ]
  end

  def application do
    [mod: {Shop.Application, []}, extra_applications: [:logger]]
  end

  # From this checkout. In a project of your own, URL and REF being those of Weir's repository and a commit:
  #
  #     {:weir_pool, git: "URL", ref: "REF", sparse: "apps/weir_pool"}
  #
  # with a line for each application that a part needs: weir_log needs weir_server, weir_memcached needs weir_pool and
  # weir_server. Once Weir is on hex, the part alone:
  #
  #     {:weir_memcached, "~> 0.1.0"}
  defp deps do
    parts =
      for part <- [:weir_pool, :weir_server, :weir_flow, :weir_log, :weir_socket, :weir_memcached] do
        {part, path: "../../apps/#{part}"}
      end

    # A memcached for the tests.
    [{:weir_memcached_server, path: "../../apps/weir_memcached_server", only: :test} | parts]
  end
end
