defmodule Shop.Prices do
  @moduledoc """
  A GenServer that everybody asks, moved behind a pool.

  The callbacks are as they were, and so is `start_link/1` but for the `name:`, since there are several now. What
  changed is the functions that callers use: `:weir_pool.call/2` where `GenServer.call/2` was.
  """
  use GenServer

  def start_link(opts), do: GenServer.start_link(__MODULE__, opts)

  @doc "The price of an item in cents, from any worker. It was `GenServer.call(__MODULE__, {:price, item})`."
  def price(item) do
    case :weir_pool.call(:prices, {:price, item}) do
      {:ok, answer} -> answer
      {:error, reason} -> {:error, reason}
    end
  end

  @doc "The same, always from the same worker for one customer, who finds the customer's discounts in its state."
  def price(item, customer) do
    case :weir_pool.call_key(:prices, customer, {:price, item}) do
      {:ok, answer} -> answer
      {:error, reason} -> {:error, reason}
    end
  end

  @impl true
  def init(_opts), do: {:ok, %{asked: 0}}

  @impl true
  def handle_call({:price, item}, _from, state) do
    {:reply, {:ok, 100 + 10 * String.length(item)}, %{state | asked: state.asked + 1}}
  end
end
