defmodule Shop.PoolTest do
  use ExUnit.Case
  import Shop.Test

  test "calls are shared by all workers" do
    {:ok, workers} = :weir_pool.workers(:prices)
    before = for {_slot, pid} <- workers, do: :sys.get_state(pid).asked
    n = length(workers)
    assert n == System.schedulers_online()

    prices = Task.await_many(for _ <- 1..(10 * n), do: Task.async(fn -> Shop.Prices.price("tea") end))
    assert Enum.uniq(prices) == [{:ok, 130}]
    asked = for {_slot, pid} <- workers, do: :sys.get_state(pid).asked
    assert Enum.sum(asked) == Enum.sum(before) + 10 * n
    assert Enum.all?(Enum.zip(before, asked), fn {was, is} -> is > was end)
  end

  test "a customer has one worker" do
    {:ok, worker} = :weir_pool.pick(:prices, "Ada")
    before = :sys.get_state(worker).asked
    for _ <- 1..20, do: assert({:ok, 130} = Shop.Prices.price("tea", "Ada"))
    assert :sys.get_state(worker).asked == before + 20
  end

  test "a worker that dies is replaced" do
    {:ok, worker} = :weir_pool.pick(:prices, "Ada")
    Process.exit(worker, :kill)
    eventually(fn -> match?({:ok, pid} when pid != worker, :weir_pool.pick(:prices, "Ada")) end)
    assert {:ok, 130} = Shop.Prices.price("tea", "Ada")
  end

  test "a printer is one's own while it is claimed" do
    {:ok, [_, _]} = :weir_pool.workers(:printers)

    # Each of two processes has one.
    go_on = for _ <- 1..2, do: elem(hold(fn wait -> :weir_pool.claim(:printers, fn _ -> wait.() end) end), 1)
    assert {:error, :busy} = Shop.Printer.print(["1"], 0)
    assert {:error, :timeout} = Shop.Printer.print(["1"], 10)

    # A third waits until one comes back.
    third = Task.async(fn -> Shop.Printer.print(["1", "2"], 10_000) end)
    eventually(fn -> match?({:ok, %{waiting: 1}}, :weir_pool.info(:printers)) end)
    for tell <- go_on, do: tell.()
    assert {:ok, [first, second]} = Task.await(third)
    assert second == first + 1
  end

  test "the supervisor's children are the pools by their names" do
    ids = for {id, _pid, _type, _modules} <- Supervisor.which_children(Shop.Supervisor), do: id
    expected = [{:weir_log, :audit}, {:weir_pool, :prices}, {:weir_pool, :printers}, {:weir_memcached, :carts}]
    assert expected -- ids == []
  end
end
