  // `CanonicalSpec` of the spec on the mesh. The first call makes it.
  nanobind::object canonical_spec() const;

