# In hex's place where that cannot be reached: a dependency that has but a version is a folder of that name in PACKAGES.
defmodule Newcomer.Packages do
  @behaviour Mix.SCM
  alias Mix.SCM.Path

  def accepts_options(app, opts) do
    Path.accepts_options(app, Keyword.put(opts, :path, "#{System.fetch_env!("PACKAGES")}/#{app}"))
  end

  defdelegate fetchable?(), to: Path
  defdelegate format(opts), to: Path
  defdelegate format_lock(opts), to: Path
  defdelegate checked_out?(opts), to: Path
  defdelegate lock_status(opts), to: Path
  defdelegate equal?(opts1, opts2), to: Path
  defdelegate managers(opts), to: Path
  defdelegate checkout(opts), to: Path
  defdelegate update(opts), to: Path
end

Mix.SCM.append(Newcomer.Packages)

defmodule Newcomer.MixProject do
  use Mix.Project

  def project do
    [app: :newcomer, version: "1.0.0", deps: deps(), releases: [newcomer: [include_erts: false]]]
  end

  def application, do: [mod: {:newcomer, []}, env: [part: :PART]]

  defp deps, do: [{:PART, "~> VERSION"}]
end
