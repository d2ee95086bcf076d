// Returns the sharding of each base array of `outputs`, the result of the
// Python dispatch function: for an extended dtype the sharding of the base
// array itself, otherwise the entry of `out_shardings`. An extended dtype is a
// leaf of the default registry and a node of `registry`.
//
// Does not throw, since donated arguments are already deleted. Returns
// `out_shardings` if anything is unexpected.
std::vector<nb::object> PhysicalOutShardings(
    nb::handle outputs, const std::vector<nb::object>& out_shardings,
    size_t num_base_arrays, PyTreeRegistry* registry) {
  std::vector<nb::object> leaves, shardings;
  try {
    nb::object default_registry =
        nb::module_::import_("jaxlib._jax.pytree").attr("default_registry")();
    PyTreeDef(nb::cast<PyTreeRegistry*>(default_registry))
        .Flatten(outputs, leaves);
    for (size_t i = 0; i < leaves.size(); ++i) {
      std::vector<nb::object> base_arrays;
      PyTreeDef(registry).Flatten(leaves[i], base_arrays);
      for (const nb::object& base_array : base_arrays) {
        shardings.push_back(base_array.is(leaves[i])
                                ? out_shardings.at(i)
                                : nb::cast<PyArray>(base_array).sharding());
      }
    }
  } catch (const std::exception& e) {
    VLOG(2) << "no physical out_shardings: " << e.what();
    return out_shardings;
  }
  return shardings.size() == num_base_arrays ? shardings : out_shardings;
}

