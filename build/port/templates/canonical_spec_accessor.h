  // `CanonicalSpec` of the spec on the mesh, made at the first call.
  nanobind::object canonical_spec() const;

