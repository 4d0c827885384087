defmodule Shop.FlowTest do
  use ExUnit.Case
  import Shop.Test
  alias Shop.Mailer

  test "senders wait for a mailer that is busy" do
    mailer = Process.whereis(Mailer)
    {_, go_on} = hold(fn wait -> :sys.replace_state(Mailer, fn state -> wait.() && state end, :infinity) end)
    to = "#{inspect(make_ref())}"
    mails = for n <- 1..20, do: {n, Mailer.mail(to, "#{n}", 0)}
    assert {_, {:error, :timeout}} = List.last(mails)
    taken = Enum.count(mails, fn {_, result} -> result == :ok end)
    assert taken in 1..8

    # Others, each with a window of their own, wait.
    senders = for _ <- 1..10, do: Task.async(fn -> for n <- 1..50, do: Mailer.mail(to, "#{n}", :infinity) end)
    eventually(fn -> elem(Process.info(mailer, :message_queue_len), 1) >= 10 * 8 end)
    refute Enum.any?(senders, &Task.yield(&1, 0))
    assert elem(Process.info(mailer, :message_queue_len), 1) <= 11 * 9

    go_on.()
    assert senders |> Task.await_many() |> List.flatten() |> Enum.uniq() == [:ok]
    assert Mailer.sent(to) == taken + 500
  end

  test "a mailer that is not there" do
    assert {:error, :noproc} = :weir_flow.cast(:nobody, :mail, window: 8)
  end
end
