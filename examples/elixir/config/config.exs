import Config

config :shop,
  log_dir: if(config_env() == :test, do: "_build/test/log", else: "log"),
  memcached: [host: "localhost", port: 11211],
  # 0: any port that is free; Shop.Wire.port/0 tells which.
  wire_port: if(config_env() == :test, do: 0, else: 4040)
