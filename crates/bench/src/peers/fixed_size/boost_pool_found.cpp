// Preprocessed by the build script, which looks for the declaration: is there a Boost.Pool?
#if __has_include(<boost/pool/pool.hpp>)
int boost_pool_found;
#endif
