/* The classes of the pattern Thread-local Memory Pool, under its names: see allotment.hpp. */
#ifndef ALLOTMENT_PATTERN_HPP
#define ALLOTMENT_PATTERN_HPP

#include "owners.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <ostream>
#include <string_view>
#include <utility>

namespace allot {

/* The base class of all allocators of the pattern. A derived class overrides Free and the hook
 * Alloc.
 *
 * Malloc and Calloc return null if there is no memory. */
class Allocator {
public:
    explicit Allocator(long allocatorid) noexcept : fAllocatorId(allocatorid) {}
    virtual ~Allocator() = default;
    Allocator(const Allocator &) = delete;
    Allocator &operator=(const Allocator &) = delete;

    void *Malloc(std::size_t size) { return Alloc(size == 0 ? 1 : size); }
    /* Zeroed memory. Also returns null if count times size exceeds the address space. */
    void *Calloc(std::size_t count, std::size_t size)
    {
        std::size_t bytes = 0;
        if (__builtin_mul_overflow(count, size, &bytes)) {
            return nullptr;
        }
        void *block = Malloc(bytes);
        if (block != nullptr) {
            std::memset(block, 0, bytes);
        }
        return block;
    }
    /* Frees a block of this allocator. Null is ignored. */
    virtual void Free(void *block) = 0;
    /* The number that was passed to the constructor. The program decides what it means. */
    long GetAllocatorId() const noexcept { return fAllocatorId; }

    /* The calling thread's current allocator: see Storage. */
    static Allocator *Current() noexcept;
    /* malloc and free; its allocator id is 0. */
    static Allocator *Global() noexcept;

protected:
    /* The hook. Returns `allocSize` bytes, aligned for any type without extended alignment, or null
     * if there is no memory. `allocSize` is at least 1. */
    virtual void *Alloc(std::size_t allocSize) = 0;

private:
    friend class Storage;
    /* The pool that Storage::Scope enters when it makes this allocator current; null for none. */
    virtual allot_pool *EnteredPool() noexcept { return nullptr; }

    long fAllocatorId;
};

/* malloc and free. */
class GlobalAllocator final : public Allocator {
public:
    GlobalAllocator() noexcept : Allocator(0) {}
    void Free(void *block) override { std::free(block); }

protected:
    void *Alloc(std::size_t allocSize) override { return std::malloc(allocSize); }
};

/* A pool. Any thread may free its blocks. A thread that does not own the pool allocates from malloc
 * instead. Each block has a header of 16 bytes, because Free gets no size. */
class PoolAllocator final : public Allocator {
public:
    /* Creates its own pool, which belongs to the calling thread. */
    explicit PoolAllocator(long allocatorid, const options &wanted = options())
        : Allocator(allocatorid), fOwn(wanted), fPool(fOwn.get()), fReference(fOwn.reference())
    {
    }
    /* Uses a pool that must outlive this object. */
    PoolAllocator(long allocatorid, const pool &of)
        : Allocator(allocatorid), fOwn(static_cast<allot_pool *>(nullptr)), fPool(of.get()), fReference(of.reference())
    {
    }
    void Free(void *block) override { allot_free(block); }
    pool_ref Reference() const noexcept { return fReference; }

protected:
    void *Alloc(std::size_t allocSize) override { return allot_ref_try_malloc(fReference.get(), allocSize); }

private:
    allot_pool *EnteredPool() noexcept override { return fPool; }

    pool fOwn;
    allot_pool *fPool;
    pool_ref fReference;
};

/* An arena. Free does nothing: the memory is freed when the arena is reset or destroyed. Only the
 * arena's thread may use it. */
class ArenaAllocator final : public Allocator {
public:
    explicit ArenaAllocator(long allocatorid, const options &wanted = options()) : Allocator(allocatorid), fArena(wanted) {}
    void Free(void *) override {}
    arena &Arena() noexcept { return fArena; }

protected:
    void *Alloc(std::size_t allocSize) override { return fArena.try_allocate(allocSize); }

private:
    arena fArena;
};

namespace detail {

/* Current for a thread that entered a pool without a Storage::Scope. Looks up the pool at each
 * call. */
class current_pool_allocator final : public Allocator {
public:
    current_pool_allocator() noexcept : Allocator(0) {}
    void Free(void *block) override { allot_free(block); }

protected:
    void *Alloc(std::size_t allocSize) override { return allot_try_malloc(allocSize); }
};

/* Returns an object that is never destroyed, so that destructors of static objects may use it. */
template <class T>
T *everlasting() noexcept
{
    alignas(T) static unsigned char place[sizeof(T)];
    static T *object = ::new (static_cast<void *>(place)) T();
    return object;
}

/* The allocator that a thread made current last, and its current pool at that time. */
struct made_current {
    Allocator *allocator;
    allot_pool_ref pool;
};

inline thread_local made_current current_allocator_of_thread = {nullptr, 0};

} // namespace detail

/* The current allocator of a thread: what the thread made current last, either an allocator with a
 * Scope, or a pool by entering it. Entering the current pool again changes nothing. */
class Storage {
public:
    static Allocator *Current() noexcept
    {
        const detail::made_current made = detail::current_allocator_of_thread;
        const allot_pool_ref pool = allot_current();
        if (made.allocator != nullptr && made.pool == pool) {
            return made.allocator;
        }
        return pool != allot_global() ? detail::everlasting<detail::current_pool_allocator>() : Global();
    }

    static Allocator *Global() noexcept { return detail::everlasting<GlobalAllocator>(); }

    /* Makes an allocator current while the scope exists. For a PoolAllocator it also enters the
     * pool, so that `pooled` objects and current_pool() allocate from it too; only the pool's own
     * thread may do that. Scopes nest, so they can only be local variables. */
    class [[nodiscard]] Scope {
    public:
        explicit Scope(Allocator &allocator)
            : fBefore(detail::current_allocator_of_thread), fPool(allocator.EnteredPool())
        {
            if (fPool != nullptr) {
                fEntered = detail::entered(fPool);
            }
            detail::current_allocator_of_thread = {&allocator, allot_current()};
        }
        ~Scope()
        {
            detail::current_allocator_of_thread = fBefore;
            if (fPool != nullptr) {
                allot_pool_leave(fEntered);
            }
        }
        Scope(const Scope &) = delete;
        Scope &operator=(const Scope &) = delete;
        static void *operator new(std::size_t) = delete;

    private:
        detail::made_current fBefore;
        allot_pool *fPool;
        allot_entered fEntered{};
    };
};

inline Allocator *Allocator::Current() noexcept
{
    return Storage::Current();
}

inline Allocator *Allocator::Global() noexcept
{
    return Storage::Global();
}

/* A string in the memory of an allocator: the one that is passed, or else the thread's current one.
 * The allocator must outlive the string. A string keeps its allocator. Assignment copies the
 * characters; a move between strings with the same allocator takes over the buffer. Throws
 * std::bad_alloc without memory. */
class String {
public:
    String(Allocator *a = Storage::Current()) noexcept : fAllocator(a != nullptr ? a : Storage::Global()) {}
    String(const char *text, Allocator *a = Storage::Current()) : String(std::string_view(text), a) {}
    String(std::string_view text, Allocator *a = Storage::Current()) : String(a) { append(text); }
    String(const String &other, Allocator *a = Storage::Current()) : String(other.view(), a) {}
    String(String &&other) noexcept
        : fAllocator(other.fAllocator), fData(std::exchange(other.fData, nullptr)), fLength(std::exchange(other.fLength, 0)),
          fCapacity(std::exchange(other.fCapacity, 0))
    {
    }
    ~String() { give_back(); }

    String &operator=(const String &other) { return this == &other ? *this : assign(other.view()); }
    String &operator=(String &&other)
    {
        if (fAllocator != other.fAllocator) {
            return assign(other.view());
        }
        if (this != &other) {
            give_back();
            fData = std::exchange(other.fData, nullptr);
            fLength = std::exchange(other.fLength, 0);
            fCapacity = std::exchange(other.fCapacity, 0);
        }
        return *this;
    }
    String &operator=(std::string_view text) { return assign(text); }
    String &operator=(const char *text) { return assign(text); }

    /* For assign and append, the text may be part of this string. */
    String &assign(std::string_view text)
    {
        if (text.size() > fCapacity) {
            String longer(text, fAllocator);
            swap_buffers(longer);
        } else {
            if (!text.empty()) {
                std::memmove(fData, text.data(), text.size());
            }
            end_at(text.size());
        }
        return *this;
    }
    String &append(std::string_view text)
    {
        if (text.empty()) {
            return *this;
        }
        std::size_t length = 0;
        if (__builtin_add_overflow(fLength, text.size(), &length)) {
            detail::fail_memory();
        }
        if (length > fCapacity) {
            String longer(fAllocator);
            longer.reserve(grown(length));
            longer.append(view());
            std::memcpy(longer.fData + longer.fLength, text.data(), text.size());
            swap_buffers(longer);
        } else {
            std::memmove(fData + fLength, text.data(), text.size());
        }
        end_at(length);
        return *this;
    }
    String &append(char character) { return append(std::string_view(&character, 1)); }
    String &operator+=(std::string_view text) { return append(text); }
    String &operator+=(char character) { return append(character); }

    /* Makes room for at least `capacity` characters. */
    void reserve(std::size_t capacity)
    {
        if (capacity <= fCapacity) {
            return;
        }
        char *data = capacity + 1 == 0 ? nullptr : static_cast<char *>(fAllocator->Malloc(capacity + 1));
        if (data == nullptr) {
            detail::fail_memory();
        }
        if (fLength > 0) {
            std::memcpy(data, fData, fLength);
        }
        give_back();
        fData = data;
        fCapacity = capacity;
        end_at(fLength);
    }
    void clear() noexcept { end_at(0); }

    const char *c_str() const noexcept { return fData != nullptr ? fData : ""; }
    const char *data() const noexcept { return c_str(); }
    std::size_t size() const noexcept { return fLength; }
    std::size_t length() const noexcept { return fLength; }
    std::size_t capacity() const noexcept { return fCapacity; }
    bool empty() const noexcept { return fLength == 0; }
    char &operator[](std::size_t index) noexcept { return const_cast<char &>(c_str()[index]); }
    const char &operator[](std::size_t index) const noexcept { return c_str()[index]; }
    std::string_view view() const noexcept { return std::string_view(c_str(), fLength); }
    operator std::string_view() const noexcept { return view(); }
    Allocator *GetAllocator() const noexcept { return fAllocator; }

    friend bool operator==(const String &one, const String &other) noexcept { return one.view() == other.view(); }
    friend bool operator!=(const String &one, const String &other) noexcept { return one.view() != other.view(); }
    friend bool operator<(const String &one, const String &other) noexcept { return one.view() < other.view(); }
    friend bool operator==(const String &one, std::string_view other) noexcept { return one.view() == other; }
    friend bool operator==(std::string_view one, const String &other) noexcept { return one == other.view(); }
    friend bool operator!=(const String &one, std::string_view other) noexcept { return one.view() != other; }
    friend bool operator!=(std::string_view one, const String &other) noexcept { return one != other.view(); }
    friend bool operator==(const String &one, const char *other) noexcept { return one.view() == other; }
    friend bool operator==(const char *one, const String &other) noexcept { return one == other.view(); }
    friend bool operator!=(const String &one, const char *other) noexcept { return one.view() != other; }
    friend bool operator!=(const char *one, const String &other) noexcept { return one != other.view(); }
    friend std::ostream &operator<<(std::ostream &out, const String &text) { return out << text.view(); }

private:
    std::size_t grown(std::size_t wanted) const noexcept
    {
        const std::size_t twice = 2 * fCapacity;
        return wanted > twice ? (wanted < 15 ? 15 : wanted) : twice;
    }
    void end_at(std::size_t length) noexcept
    {
        fLength = length;
        if (fData != nullptr) {
            fData[length] = '\0';
        }
    }
    void swap_buffers(String &other) noexcept
    {
        std::swap(fData, other.fData);
        std::swap(fLength, other.fLength);
        std::swap(fCapacity, other.fCapacity);
    }
    void give_back() noexcept
    {
        if (fData != nullptr) {
            fAllocator->Free(fData);
        }
    }
    Allocator *fAllocator;
    char *fData = nullptr;
    std::size_t fLength = 0;
    std::size_t fCapacity = 0;
};

} // namespace allot

/* Hashes the characters, so that a String can be a key. */
template <>
struct std::hash<allot::String> {
    std::size_t operator()(const allot::String &text) const noexcept { return std::hash<std::string_view>()(text.view()); }
};

#endif
