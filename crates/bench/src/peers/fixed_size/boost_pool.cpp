// The C++ side of the row `boost-pool`. Compiled only if the headers are found.
//
// All are noexcept: an exception must not unwind into Rust, and a benchmark has no plan for
// exhausted memory.

#include <cstddef>

#include <boost/pool/pool.hpp>

namespace {

using Pool = boost::pool<boost::default_user_allocator_new_delete>;

}  // namespace

extern "C" {

void* peers_boost_pool_create(std::size_t size) noexcept { return new Pool(size); }

void peers_boost_pool_destroy(void* pool) noexcept { delete static_cast<Pool*>(pool); }

void* peers_boost_pool_malloc(void* pool) noexcept { return static_cast<Pool*>(pool)->malloc(); }

void peers_boost_pool_free(void* pool, void* block) noexcept {
    static_cast<Pool*>(pool)->free(block);
}
}
