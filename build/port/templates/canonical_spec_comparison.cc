           // The compiler, which spells an output's sharding, does not keep to
           // the spelling of an input.
           (a_named_sharding->spec().is(b_named_sharding->spec()) ||
            a_named_sharding->canonical_spec().equal(
                b_named_sharding->canonical_spec())) &&
