// The C++ side of the two std::pmr rows.
//
// Each function works on storage that the Rust side owns. The resources are final here, so the
// compiler calls them directly and inlines the functions of their headers. A row pays one call from
// Rust, about as much as a std::pmr container pays for its virtual call.
//
// All are noexcept: an exception must not unwind into Rust, and a benchmark has no plan for
// exhausted memory, so std::bad_alloc ends the process.

#include <cstddef>
#include <memory_resource>
#include <new>

namespace {

struct Monotonic final : std::pmr::monotonic_buffer_resource {
    using std::pmr::monotonic_buffer_resource::monotonic_buffer_resource;
};

struct Pool final : std::pmr::unsynchronized_pool_resource {
    using std::pmr::unsynchronized_pool_resource::unsynchronized_pool_resource;
};

// The pools of libstdc++ before GCC 15 ignore the alignment if the size is not a multiple of it: a
// block of 112 bytes serves 106 bytes with an alignment of 64. All versions serve a size rounded up
// to the alignment.
constexpr std::size_t rounded(std::size_t size, std::size_t align) noexcept {
    return (size + align - 1) & ~(align - 1);
}

// The size and alignment that the Rust side reserves.
constexpr std::size_t storage_size = 128;
constexpr std::size_t storage_align = 16;

template <typename Resource>
void create(void* storage) noexcept {
    static_assert(sizeof(Resource) <= storage_size, "the Rust side reserves too little");
    static_assert(alignof(Resource) <= storage_align, "the Rust side aligns too little");
    new (storage) Resource(std::pmr::new_delete_resource());
}

template <typename Resource>
Resource& resource(void* storage) noexcept {
    return *std::launder(static_cast<Resource*>(storage));
}

}  // namespace

extern "C" {

void peers_pmr_monotonic_create(void* storage) noexcept { create<Monotonic>(storage); }

void peers_pmr_monotonic_destroy(void* storage) noexcept {
    resource<Monotonic>(storage).~Monotonic();
}

void* peers_pmr_monotonic_allocate(void* storage, std::size_t size, std::size_t align) noexcept {
    return resource<Monotonic>(storage).allocate(size, align);
}

void peers_pmr_pool_create(void* storage) noexcept { create<Pool>(storage); }

void peers_pmr_pool_destroy(void* storage) noexcept { resource<Pool>(storage).~Pool(); }

void* peers_pmr_pool_allocate(void* storage, std::size_t size, std::size_t align) noexcept {
    return resource<Pool>(storage).allocate(rounded(size, align), align);
}

void peers_pmr_pool_deallocate(void* storage, void* block, std::size_t size,
                               std::size_t align) noexcept {
    resource<Pool>(storage).deallocate(block, rounded(size, align), align);
}

// The addresses of `new` and `delete` in this program, as C++ code sees them. A test checks with
// them that no peer replaced `new` and `delete`.
using New = void* (*)(std::size_t);
using Delete = void (*)(void*);

void* peers_operator_new() noexcept {
    return reinterpret_cast<void*>(static_cast<New>(&::operator new));
}

void* peers_operator_delete() noexcept {
    return reinterpret_cast<void*>(static_cast<Delete>(&::operator delete));
}

}
