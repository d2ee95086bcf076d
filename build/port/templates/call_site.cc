        // A static argument can be any hashable object, and is left alone.
        absl::InlinedVector<PyObject*, 4> dynamic_args(
            args, args + num_positional_args + num_keyword_args);
        for (const nb::object& arg : call_signature.arg_signature.static_args) {
          dynamic_args.erase(
              std::remove(dynamic_args.begin(), dynamic_args.end(), arg.ptr()),
              dynamic_args.end());
        }
        out_tuple = nb::cast<nb::tuple>(WithPhysicalOutShardings(
            out_tuple, dynamic_args, pytree_registry_, global_cache_key_));

