# Install layout: programs in bin, libtvm_ffi in a private folder that their run path names.
