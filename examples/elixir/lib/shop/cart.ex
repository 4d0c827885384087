defmodule Shop.Cart do
  @moduledoc "Carts in memcached. Values are any terms, so a struct comes back as it went in."
  defstruct items: [], coupon: nil

  @hour 3600

  def save(customer, %__MODULE__{} = cart), do: :weir_memcached.set(:carts, key(customer), cart, ttl: @hour)

  @doc "The customer's cart. A cart that is not there, or a memcached that is not, is an empty cart."
  def load(customer) do
    case :weir_memcached.get(:carts, key(customer), timeout: 500) do
      {:ok, %__MODULE__{} = cart} -> cart
      {:error, _not_found_or_disconnected} -> %__MODULE__{}
    end
  end

  @doc "The carts of many customers, in one request."
  def load_many(customers) do
    with {:ok, found} <- :weir_memcached.get_many(:carts, Enum.map(customers, &key/1)) do
      {:ok, Map.new(customers, &{&1, Map.get(found, key(&1), %__MODULE__{})})}
    end
  end

  # A key has no spaces; a name may.
  defp key(customer), do: "cart:" <> Base.url_encode64(customer, padding: false)
end
