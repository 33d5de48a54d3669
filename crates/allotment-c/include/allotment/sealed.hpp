/* Objects that never change after they are built, and read-only adaptors: see allotment.hpp. */
#ifndef ALLOTMENT_SEALED_HPP
#define ALLOTMENT_SEALED_HPP

#include "owners.hpp"

#include <cstddef>
#include <exception>
#include <memory_resource>
#include <string_view>
#include <type_traits>
#include <utility>

namespace allot {

/* A pointer through which an object can only be read, even if the pointer itself is not const. It
 * links objects that are shared read-only. Owns nothing. */
template <class T>
class read_only {
public:
    constexpr read_only(std::nullptr_t = nullptr) noexcept : object_(nullptr) {}
    constexpr read_only(const T *object) noexcept : object_(object) {}

    constexpr const T &operator*() const noexcept { return *object_; }
    constexpr const T *operator->() const noexcept { return object_; }
    constexpr const T *get() const noexcept { return object_; }
    constexpr explicit operator bool() const noexcept { return object_ != nullptr; }
    friend constexpr bool operator==(read_only one, read_only other) noexcept { return one.object_ == other.object_; }
    friend constexpr bool operator!=(read_only one, read_only other) noexcept { return one.object_ != other.object_; }

private:
    const T *object_;
};

/* The same for an array. */
template <class T>
class read_only_span {
public:
    constexpr read_only_span() noexcept : first_(nullptr), size_(0) {}
    constexpr read_only_span(const T *first, std::size_t size) noexcept : first_(first), size_(size) {}

    constexpr const T &operator[](std::size_t index) const noexcept { return first_[index]; }
    constexpr const T *data() const noexcept { return first_; }
    constexpr const T *begin() const noexcept { return first_; }
    constexpr const T *end() const noexcept { return first_ + size_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }

private:
    const T *first_;
    std::size_t size_;
};

/* Whether an object does not need its destructor and holds nothing outside of its own memory. True
 * for trivially destructible types. Specialise it for a type whose members are std::pmr containers
 * in the sealer's resource():
 *
 *     template <> struct allot::is_sealable<configuration> : std::true_type {};
 *
 * Use read_only for a pointer member: `const` does not apply to the target of a plain pointer. */
template <class T>
struct is_sealable : std::is_trivially_destructible<T> {};

namespace detail {

[[noreturn, gnu::cold]] inline void fail_unmade()
{
    constexpr char message[] = "sealed: the initialiser returned no object; return one that it made in the sealer";
    allot_error cause{};
    cause.allocator = "sealed";
    std::memcpy(cause.message, message, sizeof message);
    fail_as(failure::of_allocator, &cause, message);
}

} // namespace detail

/* The memory that an initialiser builds in. Usable only while the initialiser runs, on its
 * thread. */
class sealer {
public:
    explicit sealer(allot_sealer *raw) noexcept : resource_(raw) {}
    sealer(const sealer &) = delete;
    sealer &operator=(const sealer &) = delete;

    void *allocate(std::size_t size, std::size_t align = 16) { return resource_.allocate(size, align); }
    /* Creates another object, for the sealed object to point to. */
    template <class T, class... Arguments>
    T *make(Arguments &&...arguments)
    {
        static_assert(is_sealable<T>::value, "its destructor will not run: see allot::is_sealable");
        return ::new (allocate(sizeof(T), alignof(T))) T(std::forward<Arguments>(arguments)...);
    }
    template <class T>
    read_only_span<T> copy(const T *first, std::size_t count)
    {
        static_assert(std::is_trivially_copyable<T>::value, "make() the objects one by one");
        if (count == 0) {
            return read_only_span<T>();
        }
        void *place = allocate(detail::array_bytes<T>(count), alignof(T));
        return read_only_span<T>(static_cast<const T *>(std::memcpy(place, first, count * sizeof(T))), count);
    }
    /* Copies the text and adds a NUL, which the result does not include. */
    std::string_view copy(std::string_view text)
    {
        char *bytes = static_cast<char *>(allocate(text.size() + 1, 1));
        if (!text.empty()) {
            std::memcpy(bytes, text.data(), text.size());
        }
        bytes[text.size()] = '\0';
        return std::string_view(bytes, text.size());
    }
    /* For std::pmr containers that are sealed with the object. */
    std::pmr::memory_resource *resource() noexcept { return &resource_; }
    allot_sealer *get() const noexcept { return resource_.raw; }

private:
    struct sealer_resource final : std::pmr::memory_resource {
        explicit sealer_resource(allot_sealer *of) noexcept : raw(of) {}
        void *do_allocate(std::size_t size, std::size_t align) override
        {
            return detail::checked(allot_sealer_try_alloc(raw, size, align));
        }
        void do_deallocate(void *, std::size_t, std::size_t) override {}
        bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

        allot_sealer *raw;
    };

    sealer_resource resource_;
};

/* A T that any thread reads without a lock. Its memory, and everything that its initialiser
 * allocated from the sealer, is write-protected.
 *
 *     auto limits = allot::sealed<settings>::build([&](allot::sealer &sealer) {
 *         settings built;
 *         built.name = sealer.copy(name);
 *         return built;
 *     });
 *     limits->name
 *
 * If init returns a null pointer to give up, build() throws an allot::error of the kind
 * ALLOT_NO_ERROR.
 */
template <class T>
class sealed {
    static_assert(is_sealable<T>::value, "its destructor will not run: see allot::is_sealable");
    static_assert(!std::is_const<T>::value && !std::is_reference<T>::value, "name the plain type: all access is const");

public:
    sealed(sealed &&other) noexcept : sealed_(std::move(other.sealed_)), object_(std::exchange(other.object_, nullptr)) {}
    sealed &operator=(sealed &&other) noexcept
    {
        sealed_ = std::move(other.sealed_);
        object_ = std::exchange(other.object_, nullptr);
        return *this;
    }

    /* Calls init(sealer), which returns the object, or a pointer to an object that it created in
     * the sealer. Exceptions of init propagate to the caller. */
    template <class Init>
    static sealed build(Init &&init)
    {
        return build(options(), std::forward<Init>(init));
    }
    template <class Init>
    static sealed build(const options &wanted, Init &&init)
    {
        builder<std::remove_reference_t<Init>> builder{init, nullptr};
        allot_clear_error();
        allot_sealed *made = allot_sealed_try_create(wanted.get(), &decltype(builder)::run, &builder);
        if (builder.thrown != nullptr) {
            std::rethrow_exception(builder.thrown);
        }
        if (made == nullptr && allot_last_error()->kind == ALLOT_NO_ERROR) {
            detail::fail_unmade();
        }
        return sealed(detail::checked(made));
    }
    /* Constructs T(arguments...) and seals it. */
    template <class... Arguments>
    static sealed make(Arguments &&...arguments)
    {
        return build([&](sealer &sealer) { return sealer.make<T>(std::forward<Arguments>(arguments)...); });
    }

    const T &operator*() const noexcept { return *get(); }
    const T *operator->() const noexcept { return get(); }
    /* Null if this object was moved from. */
    const T *get() const noexcept { return object_; }
    operator read_only<T>() const noexcept { return read_only<T>(object_); }
    allot::statistics statistics() const noexcept { return allot_sealed_statistics(sealed_.get()); }

    /* Keeps the object for the life of the process. */
    read_only<T> leak() && noexcept { return read_only<T>(static_cast<const T *>(allot_sealed_leak(sealed_.release()))); }

private:
    template <class Init>
    struct builder {
        Init &init;
        std::exception_ptr thrown;

        static const void *run(allot_sealer *raw, void *context) noexcept
        {
            builder &self = *static_cast<builder *>(context);
#ifdef __cpp_exceptions
            try {
                return self.object(raw);
            } catch (...) {
                self.thrown = std::current_exception();
                return nullptr;
            }
#else
            return self.object(raw);
#endif
        }

        const T *object(allot_sealer *raw)
        {
            /* The sealer lies in the memory that will be sealed, because containers keep a pointer
             * to its resource. */
            void *place = detail::checked(allot_sealer_try_alloc(raw, sizeof(sealer), alignof(sealer)));
            sealer &with = *::new (place) sealer(raw);
            using Built = std::invoke_result_t<Init &, sealer &>;
            if constexpr (std::is_convertible<Built, const T *>::value) {
                return init(with);
            } else {
                static_assert(std::is_convertible<Built, T>::value, "init has to return the object, or a pointer to it");
                /* Allocated before init runs, because it may throw; the object is then built in
                 * place. */
                void *object = with.allocate(sizeof(T), alignof(T));
                return ::new (object) T(init(with));
            }
        }
    };

    explicit sealed(allot_sealed *made) noexcept : sealed_(made), object_(static_cast<const T *>(allot_sealed_get(made))) {}

    detail::handle<allot_sealed> sealed_;
    const T *object_;
};

} // namespace allot

#endif
