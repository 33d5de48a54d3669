/* An exchange's order book in three variants: on malloc, on std::pmr, and on Allotment.
 *
 * What is allocated, and where from:
 *
 *   object              dies                   malloc       std::pmr                      Allotment
 *   a message's parts   with the message       new, delete  monotonic_buffer_resource     arena
 *   an order            when it is matched     new, delete  unsynchronized_pool_resource  allot::pooled: `new` in the
 *                                                                                         pool that the thread entered
 *   a price's queue     when it is empty       new, delete  the same                      the same pool
 *   a trade             on another thread,     new, delete  new, delete                   slab, by its deleter
 *                       which reports it
 *
 *     c++ -std=c++17 -O2 -pthread order_book.cpp -o order_book $(pkg-config --cflags --libs allotment)
 *     ./order_book
 */
#include <allotment.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

/* ---- the three variants ---- */

struct trade {
    std::uint64_t buyer;
    std::uint64_t seller;
    std::uint32_t price;
    std::uint32_t quantity;
    char note[40];
};

/* An order. `Base` gives the class its `new` and `delete`. */
template <class Base>
struct order : Base {
    order(std::uint64_t id, std::uint32_t price, std::uint32_t quantity, std::string_view client)
        : id(id), price(price), quantity(quantity), length(static_cast<unsigned char>(std::min(client.size(), sizeof name)))
    {
        std::memcpy(name, client.data(), length);
    }

    std::uint64_t id;
    std::uint32_t price;
    std::uint32_t quantity;
    order *next = nullptr;
    unsigned char length;
    char name[23];
};

struct ordinary {};

class on_malloc {
public:
    static constexpr const char *name = "malloc";
    using order_type = order<ordinary>;
    using order_ptr = std::unique_ptr<order_type>;
    using trade_ptr = std::unique_ptr<trade>;

    template <class... Arguments>
    order_ptr make_order(Arguments &&...arguments)
    {
        return std::make_unique<order_type>(std::forward<Arguments>(arguments)...);
    }
    trade_ptr make_trade(const trade &made) { return std::make_unique<trade>(made); }
    std::pmr::memory_resource *message() { return std::pmr::new_delete_resource(); }
    std::pmr::memory_resource *book() { return std::pmr::new_delete_resource(); }
    void message_done() {}
};

class on_pmr {
public:
    static constexpr const char *name = "std::pmr";
    using order_type = order<ordinary>;
    struct order_deleter {
        std::pmr::memory_resource *memory;
        void operator()(order_type *gone) const
        {
            gone->~order_type();
            memory->deallocate(gone, sizeof *gone, alignof(order_type));
        }
    };
    using order_ptr = std::unique_ptr<order_type, order_deleter>;
    using trade_ptr = std::unique_ptr<trade>;

    template <class... Arguments>
    order_ptr make_order(Arguments &&...arguments)
    {
        void *place = lasting_.allocate(sizeof(order_type), alignof(order_type));
        return order_ptr(::new (place) order_type(std::forward<Arguments>(arguments)...), order_deleter{&lasting_});
    }
    trade_ptr make_trade(const trade &made) { return std::make_unique<trade>(made); }
    std::pmr::memory_resource *message() { return &transient_; }
    std::pmr::memory_resource *book() { return &lasting_; }
    void message_done() { transient_.release(); }

private:
    alignas(64) char buffer_[16384];
    std::pmr::monotonic_buffer_resource transient_{buffer_, sizeof buffer_};
    std::pmr::unsynchronized_pool_resource lasting_;
};

class on_allotment {
public:
    static constexpr const char *name = "Allotment";
    using order_type = order<allot::pooled>;
    using order_ptr = std::unique_ptr<order_type>;
    using trade_ptr = allot::slab_ptr<trade>;

    template <class... Arguments>
    order_ptr make_order(Arguments &&...arguments)
    {
        return std::make_unique<order_type>(std::forward<Arguments>(arguments)...);
    }
    trade_ptr make_trade(const trade &made) { return trades_.make_unique(made); }
    std::pmr::memory_resource *message() { return &transient_; }
    std::pmr::memory_resource *book() { return &lasting_; }
    void message_done() { messages_.reset(); }

private:
    allot::arena messages_{allot::options().name("messages")};
    allot::arena_resource transient_{messages_};
    allot::pool orders_{allot::options().name("orders")};
    allot::pool_resource lasting_{orders_};
    allot::slab<trade> trades_{allot::options().name("trades")};
    allot::pool_scope inside_{orders_};
};

/* ---- the thread that reports trades ---- */

template <class Variant>
class reporter {
public:
    void take(typename Variant::trade_ptr made)
    {
        batch_.push_back(std::move(made));
        if (batch_.size() == batch_size) {
            send();
        }
    }

    /* Waits until all trades are reported. Returns their sum. */
    std::uint64_t finish()
    {
        send();
        {
            std::lock_guard<std::mutex> lock(mutex_);
            ended_ = true;
        }
        changed_.notify_one();
        thread_.join();
        return sum_;
    }

private:
    static constexpr std::size_t batch_size = 256;

    void send()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return waiting_.empty(); });
        std::swap(waiting_, batch_);
        lock.unlock();
        changed_.notify_one();
    }

    void run()
    {
        std::vector<typename Variant::trade_ptr> mine;
        for (bool ended = false; !ended;) {
            std::unique_lock<std::mutex> lock(mutex_);
            changed_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
            ended = ended_ && waiting_.empty();
            std::swap(mine, waiting_);
            lock.unlock();
            changed_.notify_one();
            for (const auto &reported : mine) {
                sum_ += reported->price * static_cast<std::uint64_t>(reported->quantity) + reported->note[0];
            }
            mine.clear(); /* frees on this thread what the other one made */
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<typename Variant::trade_ptr> batch_;
    std::vector<typename Variant::trade_ptr> waiting_;
    bool ended_ = false;
    std::uint64_t sum_ = 0;
    std::thread thread_{[this] { run(); }};
};

/* ---- the book ---- */

/* The orders of one price, the oldest first. */
template <class Variant>
struct price_queue {
    typename Variant::order_type *first = nullptr;
    typename Variant::order_type *last = nullptr;
};

template <class Variant>
class order_book {
public:
    explicit order_book(Variant &variant) : variant_(variant), buys_(variant.book()), sells_(variant.book()) {}
    order_book(const order_book &) = delete;
    order_book &operator=(const order_book &) = delete;
    ~order_book()
    {
        clear(buys_);
        clear(sells_);
    }

    /* A line such as `buy,17,client-4,10050,30,comment`. */
    void handle(std::string_view line)
    {
        std::pmr::vector<std::pmr::string> parts(variant_.message());
        while (!line.empty()) {
            const std::size_t end = std::min(line.find(','), line.size());
            parts.emplace_back(line.substr(0, end));
            line.remove_prefix(std::min(end + 1, line.size()));
        }
        const bool is_buy = parts[0] == "buy";
        auto made = variant_.make_order(std::strtoull(parts[1].c_str(), nullptr, 10),
                                    static_cast<std::uint32_t>(std::strtoul(parts[3].c_str(), nullptr, 10)),
                                    static_cast<std::uint32_t>(std::strtoul(parts[4].c_str(), nullptr, 10)), parts[2]);
        if (is_buy) {
            match(std::move(made), sells_, buys_, [](std::uint32_t own, std::uint32_t other) { return other <= own; });
        } else {
            match(std::move(made), buys_, sells_, [](std::uint32_t own, std::uint32_t other) { return other >= own; });
        }
    }

    std::uint64_t finish() { return report_.finish(); }

private:
    using order_type = typename Variant::order_type;
    template <class Compare>
    using side = std::pmr::map<std::uint32_t, price_queue<Variant>, Compare>;

    template <class Others, class Own, class Suits>
    void match(typename Variant::order_ptr made, Others &others, Own &own, Suits suits)
    {
        while (made->quantity > 0 && !others.empty() && suits(made->price, others.begin()->first)) {
            auto best = others.begin();
            order_type *oldest = best->second.first;
            const std::uint32_t quantity = std::min(made->quantity, oldest->quantity);
            trade done{made->id, oldest->id, best->first, quantity, {}};
            std::memcpy(done.note, oldest->name, oldest->length);
            report_.take(variant_.make_trade(done));
            made->quantity -= quantity;
            oldest->quantity -= quantity;
            if (oldest->quantity == 0) {
                best->second.first = oldest->next;
                owned(oldest);
                if (best->second.first == nullptr) {
                    others.erase(best);
                }
            }
        }
        if (made->quantity > 0) {
            price_queue<Variant> &queue = own[made->price];
            order_type *kept = made.release();
            (queue.first == nullptr ? queue.first : queue.last->next) = kept;
            queue.last = kept;
        }
    }

    /* Takes an order of the book over, to end it. */
    typename Variant::order_ptr owned(order_type *kept)
    {
        if constexpr (std::is_same<Variant, on_pmr>::value) {
            return typename Variant::order_ptr(kept, typename Variant::order_deleter{variant_.book()});
        } else {
            return typename Variant::order_ptr(kept);
        }
    }

    template <class Side>
    void clear(Side &orders)
    {
        for (auto &[price, queue] : orders) {
            while (order_type *first = queue.first) {
                queue.first = first->next;
                owned(first);
            }
        }
    }

    Variant &variant_;
    side<std::greater<>> buys_;
    side<std::less<>> sells_;
    reporter<Variant> report_;
};

/* ---- the measurement ---- */

std::vector<std::string> messages(unsigned count)
{
    std::uint64_t state = 88172645463325252u;
    const auto random = [&state](unsigned below) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return static_cast<unsigned>(state >> 33) % below;
    };
    std::vector<std::string> lines;
    for (unsigned id = 0; id < count; ++id) {
        const bool is_buy = random(2) == 0;
        const unsigned price = 10000 + random(400) + (is_buy ? 0 : 100);
        lines.push_back(std::string(is_buy ? "buy," : "sell,") + std::to_string(id) + ",client-" + std::to_string(random(5000)) +
                        "," + std::to_string(price) + "," + std::to_string(1 + random(100)) +
                        ",placed by the desk in Frankfurt, good till cancelled");
    }
    return lines;
}

struct outcome {
    double nanoseconds;
    std::uint64_t sum;
};

template <class Variant>
outcome run(const std::vector<std::string> &lines)
{
    const auto began = std::chrono::steady_clock::now();
    std::uint64_t sum = 0;
    {
        Variant variant;
        order_book<Variant> book(variant);
        for (const std::string &line : lines) {
            book.handle(line);
            variant.message_done();
        }
        sum = book.finish();
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
    return {took.count() / static_cast<double>(lines.size()), sum};
}

double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

} // namespace

int main(int count, char **words)
{
    unsigned rounds = 11, amount = 300000;
    for (int index = 1; index < count; ++index) {
        const std::string_view word = words[index];
        if (word == "--quick") {
            rounds = 1;
            amount = 20000;
        } else {
            std::fprintf(word == "--help" ? stdout : stderr,
                         "usage: order_book [--quick]\n\nHandles 300,000 messages 11 times with each of three allocators, interleaved, and "
                         "prints the median time per message,\nand the median ratio to Allotment's.\n");
            return word == "--help" ? 0 : 2;
        }
    }
    const std::vector<std::string> lines = messages(amount);
    const char *const names[] = {on_malloc::name, on_pmr::name, on_allotment::name};
    std::vector<double> times[3], ratios[3];
    for (unsigned round = 0; round < rounds; ++round) {
        const outcome found[] = {run<on_malloc>(lines), run<on_pmr>(lines), run<on_allotment>(lines)};
        for (int index = 0; index < 3; ++index) {
            if (found[index].sum != found[0].sum) {
                std::fprintf(stderr, "order_book: %s made other trades than malloc\n", names[index]);
                return 1;
            }
            times[index].push_back(found[index].nanoseconds);
            ratios[index].push_back(found[index].nanoseconds / found[2].nanoseconds);
        }
    }
    for (int index = 0; index < 3; ++index) {
        std::printf("%-10s %7.0f ns per message, %.2f times Allotment's\n", names[index], median(times[index]), median(ratios[index]));
    }
}
