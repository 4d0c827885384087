defmodule Shop.Printer do
  @moduledoc "A worker that one process has to itself for a while: it is claimed."
  use GenServer

  def start_link(opts), do: GenServer.start_link(__MODULE__, opts)

  @doc """
  Prints the pages of one document behind each other. Waits for a printer, for `wait` milliseconds at most.

  `{:error, :timeout}`: none became free in time; `{:error, {:overload, info}}`: too many wait already.
  """
  def print(pages, wait \\ 1000) do
    :weir_pool.claim(
      :printers,
      fn printer -> Enum.map(pages, &GenServer.call(printer, {:print, &1})) end,
      timeout: wait
    )
  end

  @impl true
  def init(_opts), do: {:ok, 0}

  @impl true
  def handle_call({:print, page}, _from, printed) when is_binary(page), do: {:reply, printed + 1, printed + 1}
end
