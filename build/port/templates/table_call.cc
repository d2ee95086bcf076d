  cache_entry.physical_out_shardings = PhysicalOutShardings(
      out_and_fastpath_data[0], cache_entry.out_shardings,
      cache_entry.out_avals.size(), pytree_registry_.get());

