defmodule Shop.LogTest do
  use ExUnit.Case
  require Logger

  defp read(file), do: File.read!(Path.join(Application.fetch_env!(:shop, :log_dir), file))

  test "a line is in the file when record/1 returns" do
    :ok = Shop.Audit.record("grüße from #{inspect(self())}")
    [last | _] = read("audit.log") |> String.split("\n", trim: true) |> Enum.reverse()
    assert String.ends_with?(last, "Z grüße from #{inspect(self())}")
  end

  test "lines of many processes, each in its order" do
    for p <- 1..20 do
      Task.async(fn -> for n <- 1..100, do: :ok = Shop.Audit.note("many #{p} #{n}") end)
    end
    |> Task.await_many()

    :ok = Shop.Audit.sync()
    lines = for line <- String.split(read("audit.log"), "\n"), [_, "many", p, n] <- [String.split(line)], do: {p, n}
    assert length(lines) == 2000

    for {_p, of_one} <- Enum.group_by(lines, &elem(&1, 0)) do
      assert Enum.map(of_one, &elem(&1, 1)) == Enum.map(1..100, &to_string/1)
    end
  end

  test "Logger's events are in the file" do
    {:ok, %{lost: lost}} = :weir_log_h.info(:shop_file)
    Logger.warning("from #{inspect(self())}, grüße")
    :ok = :weir_log_h.sync(:shop_file)
    assert read("shop.log") =~ "warning: from #{inspect(self())}, grüße"
    assert {:ok, %{state: :ok, lost: ^lost}} = :weir_log_h.info(:shop_file)
  end

  test "options change while it runs, by a keyword list" do
    {:ok, %{lost: before}} = :weir_log_h.info(:shop_file)
    :ok = :logger.update_handler_config(:shop_file, :config, rate: [warning: 1])
    for n <- 1..50, do: Logger.warning("rated #{n}")
    :ok = :logger.update_handler_config(:shop_file, :config, rate: [])
    :ok = :weir_log_h.sync(:shop_file)
    # One in each second, and what is not there is counted.
    written = length(String.split(read("shop.log"), "warning: rated")) - 1
    assert written in 1..25
    {:ok, %{lost: %{warning: lost}}} = :weir_log_h.info(:shop_file)
    assert lost - Map.get(before, :warning, 0) == 50 - written
  end

  test "what is no entry is said" do
    assert_raise ArgumentError, ~r/an entry is iodata/, fn -> :weir_log.log(:audit, %{a: 1}) end
    assert_raise ArgumentError, ~r/8364 is a character: give unicode/, fn -> :weir_log.log(:audit, [0x20AC]) end
  end
end
