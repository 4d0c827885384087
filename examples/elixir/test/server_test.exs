defmodule Shop.ServerTest do
  use ExUnit.Case
  import Shop.Test
  alias Shop.{Orders, Stock}

  test "what has arrived is one batch" do
    before = Stock.batches()
    :ok = :sys.suspend(Stock)
    for _ <- 1..400, do: Stock.add("tea", 2)
    count = Task.async(fn -> Stock.count("tea") end)
    :ok = :sys.resume(Stock)
    assert Task.await(count) == 800
    # The casts, perhaps with the call among them, and these two calls.
    assert Stock.batches() - before <= 4
  end

  test "a call that is one too many is answered at once" do
    {_, go_on} = hold(fn wait -> Orders.place(wait) end)
    tasks = for n <- 1..(Orders.max_queue() + 10), do: Task.async(fn -> Orders.place(n) end)
    server = Process.whereis(Orders)
    eventually(fn -> {:message_queue_len, length(tasks)} == Process.info(server, :message_queue_len) end)
    go_on.()
    {placed, refused} = tasks |> Task.await_many() |> Enum.split_with(&match?({:ok, _}, &1))
    assert length(placed) == Orders.max_queue()
    assert Enum.all?(refused, &match?({:error, {:overload, %{server: Orders, max_queue: 100}}}, &1))
    assert {:ok, %{dropped: %{calls: 10}}} = :weir_server.info(Orders)
  end

  test "GenServer's functions and supervisors talk to it as to any server" do
    pid = Process.whereis(Stock)
    assert %{items: %{}} = :sys.get_state(Stock)
    assert :ok = GenServer.stop(Stock)
    eventually(fn -> Process.whereis(Stock) not in [nil, pid] end)
    assert Stock.count("tea") == 0
  end

  test "a server under a name that is taken, or with an option that there is not" do
    assert {:error, {:already_started, _}} = Orders.start_link([])
    assert {:error, {:bad_option, :max_que, 1}} = :weir_server.start_link(Orders, [], max_que: 1)
  end
end
