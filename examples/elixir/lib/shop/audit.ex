defmodule Shop.Audit do
  @moduledoc "One line for each event, in a file that many processes write to. Entries are iodata, as strings are."

  @doc "Returns when the line is in the file."
  def record(event), do: :weir_log.log(:audit, line(event))

  @doc "Returns at once; waits now and then, so that memory is bounded. `sync/0` waits for all of them."
  def note(event), do: :weir_log.alog(:audit, line(event))

  @doc "Returns when everything before is on the disk."
  def sync, do: :weir_log.sync(:audit)

  defp line(event), do: [DateTime.to_iso8601(DateTime.utc_now()), ?\s, event]
end
