  // A hit attaches these, one for each base array. See PhysicalOutShardings.
  std::vector<nb::object> physical_out_shardings;
