defmodule Shop.CartTest do
  use ExUnit.Case
  import Shop.Test
  alias Shop.Cart

  describe "with a memcached" do
    setup do
      eventually(fn -> match?({:ok, _}, :weir_memcached.version(:carts)) end)
      :ok
    end

    test "a struct comes back as it went in" do
      cart = %Cart{items: [{"tea", 2}, {"café", 1}], coupon: ~D[2026-11-22]}
      assert :ok = Cart.save("Ada Lovelace", cart)
      assert Cart.load("Ada Lovelace") == cart

      assert {:ok, %{"Ada Lovelace" => ^cart, "nobody" => %Cart{items: []}}} =
               Cart.load_many(["Ada Lovelace", "nobody"])
    end

    test "requests take keyword lists" do
      assert :ok = :weir_memcached.set(:carts, "number", "41", codec: :raw, ttl: 60)
      assert {:ok, 42} = :weir_memcached.incr(:carts, "number", 1, timeout: 5000)
      assert {:ok, "42"} = :weir_memcached.get(:carts, "number", codec: :raw)
      assert {:error, :not_stored} = :weir_memcached.add(:carts, "number", "1", ttl: 60)
      assert :ok = :weir_memcached.set_many(:carts, [{"a", 1}, {"b", %Cart{}}], ttl: 60)
      assert {:ok, %{"a" => 1, "b" => %Cart{}}} = :weir_memcached.get_many(:carts, ["a", "b", "c"], timeout: 5000)
      assert :ok = :weir_memcached.delete(:carts, "number")
      assert {:error, :not_found} = :weir_memcached.get(:carts, "number")
    end
  end

  test "a memcached that is not there is an empty cart" do
    # A port that nobody listens on.
    {:ok, socket} = :gen_tcp.listen(0, ip: :loopback)
    {:ok, port} = :inet.port(socket)
    :ok = :gen_tcp.close(socket)
    start_supervised!({:weir_memcached, name: :nowhere, host: "localhost", port: port, connections: 1})
    assert {:error, :disconnected} = :weir_memcached.get(:nowhere, "a")
  end

  test "an option that there is not" do
    assert {:error, {:bad_option, :hots, "a"}} = :weir_memcached.start_link(:other, hots: "a")

    assert catch_error(:weir_memcached.set(:carts, "a", 1, tll: 1)) == {:bad_option, :tll, 1}
  end
end
