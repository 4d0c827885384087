defmodule Shop.Mailer do
  @moduledoc """
  A GenServer that is slower than those who send to it. It is as it was; its senders wait.

  Each process has at most eight messages in the mailbox, its `window`. The next one waits until the mailer has got
  there, for a second at most; then the mail was not sent, and the sender hears of it.
  """
  use GenServer

  def start_link(opts), do: GenServer.start_link(__MODULE__, opts, name: __MODULE__)

  @doc "It was `GenServer.cast(__MODULE__, {:mail, to, text})`."
  def mail(to, text, timeout \\ 1000) do
    :weir_flow.cast(__MODULE__, {:mail, to, text}, window: 8, timeout: timeout)
  end

  @doc "How many mails were sent to an address."
  def sent(to), do: GenServer.call(__MODULE__, {:sent, to})

  @impl true
  def init(_opts), do: {:ok, %{}}

  @impl true
  def handle_cast({:mail, to, _text}, sent), do: {:noreply, Map.update(sent, to, 1, &(&1 + 1))}

  @impl true
  def handle_call({:sent, to}, _from, sent), do: {:reply, Map.get(sent, to, 0), sent}
end
