      nb::object sharding = py_array.sharding();
      if (sharding.type().is(NamedSharding::type())) {
        // The lookup compares it, and must not be the one to run Python: with
        // the GIL released another thread could change the map under it.
        nb::inst_ptr<NamedSharding>(sharding)->canonical_spec();
      }
      signature.dynamic_arg_shardings.push_back(std::move(sharding));
