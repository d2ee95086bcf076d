nb::object NamedSharding::canonical_spec() const {
  return canonical_spec_.Get([&]() { return CanonicalSpec(spec_, mesh_); });
}

