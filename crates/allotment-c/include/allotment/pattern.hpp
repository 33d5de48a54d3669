/* The classes of the pattern Thread-local Memory Pool, by the names that it gives them: see allotment.hpp. */
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

/* What all allocators of the pattern have in common; to be derived from: override Alloc, the hook, and Free.
 *
 * Malloc and Calloc return null where there is no memory. */
class Allocator {
public:
    explicit Allocator(long allocatorid) noexcept : fAllocatorId(allocatorid) {}
    virtual ~Allocator() = default;
    Allocator(const Allocator &) = delete;
    Allocator &operator=(const Allocator &) = delete;

    void *Malloc(std::size_t size) { return Alloc(size == 0 ? 1 : size); }
    /* Zeroed; null also where count times size is more than an address can express. */
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
    /* A block of this allocator, or null. */
    virtual void Free(void *block) = 0;
    /* As it was given to the constructor; what it means is the program's own affair. */
    long GetAllocatorId() const noexcept { return fAllocatorId; }

    /* The calling thread's: see Storage. */
    static Allocator *Current() noexcept;
    /* malloc and free, with the identifier 0. */
    static Allocator *Global() noexcept;

protected:
    /* So many bytes, at least one, aligned for any usual type; null where there is no memory. */
    virtual void *Alloc(std::size_t allocSize) = 0;

private:
    friend class Storage;
    /* The pool that a thread enters for whose Storage::Scope this allocator is current. */
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

/* A pool. Its blocks may be freed by any thread, and another thread that allocates from it gets memory of malloc instead. A block
 * takes 16 bytes more than were asked for, since Free is told no size. */
class PoolAllocator final : public Allocator {
public:
    /* With a pool of its own, of the calling thread. */
    explicit PoolAllocator(long allocatorid, const options &wanted = options())
        : Allocator(allocatorid), fOwn(wanted), fPool(fOwn.get()), fReference(fOwn.reference())
    {
    }
    /* With a pool that has to outlive it. */
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

/* An arena: Free does nothing; the memory goes when the arena is reset or ends. For the arena's thread. */
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

/* For a thread in a pool that was entered otherwise: asks at each call which pool that is. */
class current_pool_allocator final : public Allocator {
public:
    current_pool_allocator() noexcept : Allocator(0) {}
    void Free(void *block) override { allot_free(block); }

protected:
    void *Alloc(std::size_t allocSize) override { return allot_try_malloc(allocSize); }
};

/* Objects that are used by static objects' destructors too: never destroyed. */
template <class T>
T *everlasting() noexcept
{
    alignas(T) static unsigned char place[sizeof(T)];
    static T *object = ::new (static_cast<void *>(place)) T();
    return object;
}

/* The allocator that a thread made current last, and the pool that it was in then. */
struct made_current {
    Allocator *allocator;
    allot_pool_ref pool;
};

inline thread_local made_current current_allocator_of_thread = {nullptr, 0};

} // namespace detail

/* The thread's storage. What is current is what the thread made so last: an allocator by a Scope, or a pool by entering it; to
 * enter the pool that the thread is in once more changes nothing. */
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

    /* Makes an allocator current while this lives; a PoolAllocator's pool is entered, so that `pooled` objects and
     * current_pool() take from it too, which only the pool's own thread may do. Scopes nest: they are local variables. */
    class [[nodiscard]] Scope {
    public:
        explicit Scope(Allocator &allocator) noexcept
            : fBefore(detail::current_allocator_of_thread), fPool(allocator.EnteredPool())
        {
            if (fPool != nullptr) {
                fEntered = allot_pool_enter(fPool);
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

/* A string in the memory of an allocator, which is the thread's current one where none is named, and which has to outlive it.
 * A string keeps its allocator: assigning to it copies the characters, or takes over the buffer of a string that has the same
 * one. What there is no memory for throws std::bad_alloc. */
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

    /* The text may be part of this string, here and below. */
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

    /* Room for so many characters at least. */
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

/* The hash of the characters, so that a String is a key. */
template <>
struct std::hash<allot::String> {
    std::size_t operator()(const allot::String &text) const noexcept { return std::hash<std::string_view>()(text.view()); }
};

#endif
