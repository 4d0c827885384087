defmodule Shop.DocsTest do
  @moduledoc "The Elixir of the guides, and the notebook, as a reader would run it."
  use ExUnit.Case
  import ExUnit.CaptureIO

  @root Path.expand("../../..", __DIR__)

  defp blocks(file) do
    text = File.read!(file)
    for [block] <- Regex.scan(~r/^```elixir\n(.*?)^```/ms, text, capture: :all_but_first), do: block
  end

  defp test?(block), do: block =~ "use ExUnit.Case"

  for file <- Path.wildcard("#{@root}/docs/guide/*.md"), File.read!(file) =~ "```elixir" do
    # One block after the other, with the variables of those before. Those of a file run in a process of their own, to
    # which what they start is linked, and in a folder of their own.
    @tag :tmp_dir
    test "docs/guide/#{Path.basename(file)}", %{tmp_dir: dir} do
      File.cd!(dir, fn ->
        {tests, samples} = Enum.split_with(blocks(unquote(file)), &test?/1)

        Task.async(fn -> Enum.reduce(samples, [], &elem(Code.eval_string(&1, &2), 1)) end)
        |> Task.await(60_000)

        Enum.each(tests, &passes!/1)
      end)
    end
  end

  # A test of a guide runs in a node of its own, with the applications of this one.
  defp passes!(block) do
    File.write!("guide_test.exs", block)

    apps =
      Enum.map([:weir_memcached, :weir_memcached_server], &"{:ok, _} = Application.ensure_all_started(#{inspect(&1)})")

    code = Enum.join(apps ++ ["ExUnit.start()"], "; ")
    paths = Enum.flat_map(:code.get_path(), &["-pa", List.to_string(&1)])
    {output, status} = System.cmd("elixir", paths ++ ["-e", code, "-r", "guide_test.exs"], stderr_to_stdout: true)
    assert status == 0, output
    assert output =~ ~r/[1-9][0-9]* tests?, 0 failures/, output
  end

  test "what cannot run here, since it belongs into other projects, is Elixir at least" do
    files =
      for pattern <- ["README.md", "docs/migrating/*.md", "apps/*/README.md"], do: Path.wildcard("#{@root}/#{pattern}")

    files = List.flatten(files)
    found = for file <- files, block <- blocks(file), do: {file, Code.string_to_quoted(block)}
    assert length(found) > 5
    assert [] == for({file, {:error, why}} <- found, do: {file, why})
  end

  describe "the notebook" do
    @notebook Path.expand("../weir.livemd", __DIR__)

    test "runs, and shows what it says" do
      ["# From the checkout" <> _ = install | blocks] = blocks(@notebook)
      assert install =~ "Mix.install("

      output =
        capture_io(fn ->
          Task.async(fn -> Enum.reduce(blocks, [], &elem(Code.eval_string(&1, &2), 1)) end)
          |> Task.await(:infinity)
          |> then(&send(self(), {:variables, &1}))
        end)

      assert_received {:variables, variables}
      # Twenty senders, each with its window and a request.
      assert Enum.max(variables[:bounded]) <= 20 * 9
      assert Enum.max(variables[:plain]) > 2 * Enum.max(variables[:bounded])
      assert output =~ ~r/^ +20 +\d+ #+ +\d+ #* *$/m
      assert %{live: live, size: live, picks: picks} = variables[:info]
      assert picks >= 201
      assert variables[:totals].batches < 1000
    end

    @tag :tmp_dir
    test "installs what it needs", %{tmp_dir: dir} do
      # Without the rest: that would take its time once more.
      [install | _] = blocks(@notebook)
      script = Path.join(Path.dirname(@notebook), "_build/install-#{System.pid()}.exs")

      check =
        "\nfor app <- [:weir_pool, :weir_server, :weir_flow], do: {:ok, _} = Application.ensure_all_started(app)\n"

      File.write!(script, String.replace(install, "__DIR__", inspect(Path.dirname(@notebook))) <> check)
      on_exit(fn -> File.rm(script) end)
      env = [{"MIX_INSTALL_DIR", dir}, {"MIX_ENV", nil}]
      {output, status} = System.cmd("elixir", [script], env: env, stderr_to_stdout: true)
      assert status == 0, output
    end
  end
end
