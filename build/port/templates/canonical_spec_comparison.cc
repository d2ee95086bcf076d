           // The compiler chooses the spelling of an output's sharding, and does
           // not keep that of an input.
           (a_named_sharding->spec().is(b_named_sharding->spec()) ||
            a_named_sharding->canonical_spec().equal(
                b_named_sharding->canonical_spec())) &&
