defmodule Shop.Orders do
  @moduledoc """
  A GenServer with a bound: one word and two options changed, `:weir_server.start_link` for `GenServer.start_link`.

  At most `max_queue` calls and casts wait. A call that is one too many is answered `{:error, {:overload, info}}` at
  once, and a cast is dropped and counted in `:weir_server.info/1`.
  """
  use GenServer

  @max_queue 100

  def start_link(opts) do
    :weir_server.start_link(__MODULE__, opts, name: __MODULE__, max_queue: @max_queue, overload: :reject)
  end

  def max_queue, do: @max_queue

  def place(order), do: GenServer.call(__MODULE__, {:place, order})

  @impl true
  def init(_opts), do: {:ok, []}

  @impl true
  def handle_call({:place, order}, _from, orders) when is_function(order, 0) do
    {:reply, {:ok, order.()}, orders}
  end

  def handle_call({:place, order}, _from, orders), do: {:reply, {:ok, length(orders) + 1}, [order | orders]}
end
