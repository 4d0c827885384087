defmodule Shop.Stock do
  @moduledoc """
  A server of `:weir_server` with `handle_batch/2`: what has arrived is handled all at once, so that thousands of casts
  share one expensive step, such as a transaction.

  `GenServer.call/2` and `GenServer.cast/2` talk to it as to any GenServer.
  """
  @behaviour :weir_server

  # What `use GenServer` would have made.
  def child_spec(opts), do: %{id: __MODULE__, start: {__MODULE__, :start_link, [opts]}}

  def start_link(opts), do: :weir_server.start_link(__MODULE__, opts, name: __MODULE__, drain: 500)

  def add(item, count), do: GenServer.cast(__MODULE__, {:add, item, count})

  def count(item), do: GenServer.call(__MODULE__, {:count, item})

  @doc "How many batches there have been."
  def batches, do: GenServer.call(__MODULE__, :batches)

  @impl true
  def init(_opts), do: {:ok, %{items: %{}, batches: 0}}

  # A batch has {:call, from, request}, {:cast, request} and {:info, message}, in the order of arrival.
  @impl true
  def handle_batch(batch, state) do
    state = %{state | batches: state.batches + 1}

    {replies, state} =
      Enum.flat_map_reduce(batch, state, fn
        {:cast, {:add, item, count}}, state -> {[], update_in(state.items, &add(&1, item, count))}
        {:call, from, {:count, item}}, state -> {[{from, Map.get(state.items, item, 0)}], state}
        {:call, from, :batches}, state -> {[{from, state.batches}], state}
        {:info, _message}, state -> {[], state}
      end)

    {:reply, replies, state}
  end

  defp add(items, item, count), do: Map.update(items, item, count, &(&1 + count))
end
