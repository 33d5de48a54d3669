/* Containers of std::pmr on an arena and on a pool: a service that parses requests, answers them
 * and caches its answers.
 *
 * The data of one request is freed with it: an arena, which is reset after each request. Cached
 * answers are freed one by one, in all sizes, on one thread: a pool. The service gets two memory
 * resources and uses neither allocator directly.
 *
 *     c++ -std=c++17 -O2 pmr.cpp -o pmr $(pkg-config --cflags --libs allotment)
 *     ./pmr --help
 */
#include "../clients/client.h"

#include <allotment.hpp>

#include <charconv>
#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

/* A cache of the latest answers. A new answer replaces the oldest one. */
class cache {
public:
    cache(std::size_t most, std::pmr::memory_resource *memory) : most_(most), answers_(memory), by_path_(memory) {}

    const std::pmr::string *find(std::string_view path)
    {
        const auto found = by_path_.find(path);
        if (found == by_path_.end()) {
            return nullptr;
        }
        answers_.splice(answers_.begin(), answers_, found->second);
        return &found->second->text;
    }

    void put(std::string_view path, std::string_view text)
    {
        if (answers_.size() == most_) {
            by_path_.erase(answers_.back().path);
            answers_.pop_back();
        }
        std::pmr::memory_resource *memory = answers_.get_allocator().resource();
        answers_.push_front(answer{std::pmr::string(path, memory), std::pmr::string(text, memory)});
        by_path_.emplace(answers_.front().path, answers_.begin());
    }

private:
    struct answer {
        std::pmr::string path;
        std::pmr::string text;
    };

    std::size_t most_;
    std::pmr::list<answer> answers_;
    std::pmr::unordered_map<std::string_view, std::pmr::list<answer>::iterator> by_path_;
};

using fields = std::pmr::map<std::pmr::string, std::pmr::string, std::less<>>;

/* Cuts off and returns the text before a separator, or the whole text if there is none. */
std::string_view cut(std::string_view &text, char separator)
{
    const std::size_t end = text.find(separator);
    const std::string_view piece = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return piece;
}

struct request {
    explicit request(std::pmr::memory_resource *memory) : path(memory), parameters(memory), headers(memory) {}

    std::pmr::string path;
    fields parameters;
    fields headers;
};

request parsed(std::string_view text, std::pmr::memory_resource *memory)
{
    request made(memory);
    std::string_view first = cut(text, '\n');
    cut(first, ' ');
    std::string_view target = cut(first, ' ');
    made.path = cut(target, '?');
    while (!target.empty()) {
        std::string_view pair = cut(target, '&');
        const std::string_view key = cut(pair, '=');
        made.parameters.emplace(key, pair);
    }
    while (!text.empty()) {
        std::string_view line = cut(text, '\n');
        const std::string_view key = cut(line, ':');
        made.headers.emplace(key, line);
    }
    return made;
}

void write(std::pmr::string &out, const char *name, const fields &all)
{
    out.append("  \"").append(name).append("\": {");
    const char *before = "\n    \"";
    for (const auto &[key, value] : all) {
        out.append(before).append(key).append("\": \"").append(value).append("\"");
        before = ",\n    \"";
    }
    out += "\n  }";
}

std::pmr::string answered(const request &asked, std::pmr::memory_resource *memory)
{
    std::pmr::string out("{\n  \"path\": \"", memory);
    out.append(asked.path).append("\",\n");
    write(out, "parameters", asked.parameters);
    out += ",\n";
    write(out, "headers", asked.headers);
    out += "\n}\n";
    return out;
}

/* Serves one request. Its temporary memory comes from `transient`. */
std::uint64_t serve(std::string_view text, cache &answers, std::pmr::memory_resource *transient)
{
    const request asked = parsed(text, transient);
    if (const std::pmr::string *known = answers.find(asked.path)) {
        return known->size();
    }
    const std::pmr::string text_of_answer = answered(asked, transient);
    answers.put(asked.path, text_of_answer);
    return text_of_answer.size();
}

constexpr unsigned requests = 2000;
constexpr std::size_t cached = 500;

/* The clients' requests, created before the measurement. */
struct traffic {
    std::vector<std::string> texts;
};

void add(std::string &text, const char *before, unsigned number)
{
    char digits[16];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    text.append(before).append(digits, end);
}

void *prepare(unsigned paths)
{
    try {
        auto made = std::make_unique<traffic>();
        std::uint64_t state = 88172645463325252u;
        for (unsigned index = 0; index < requests; ++index) {
            /* Some paths are requested more often than others. */
            const unsigned path = client_random(&state) % (1 + client_random(&state) % paths);
            std::string text;
            add(text, "GET /catalogue/section/article-", path);
            add(text, "?session=0123456789abcdef0123456789abcdef&page=", client_random(&state) % 100);
            for (unsigned more = client_random(&state) % 8; more > 0; --more) {
                add(text, "&option-", more);
                add(text, "=value-", client_random(&state));
            }
            add(text, " HTTP/1.1\nHost: shop.example.org\nAccept: text/html,application/xhtml+xml;q=0.9\n"
                      "User-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101\nAccept-Encoding: gzip, deflate, br\n"
                      "Cookie: basket=", client_random(&state));
            text += "\n";
            made->texts.push_back(std::move(text));
        }
        return made.release();
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

void dispose(void *prepared)
{
    delete static_cast<traffic *>(prepared);
}

client_result work_on(client_allocator allocator, const void *prepared, unsigned times)
{
    static std::string failure;
    client_result all = {0, 1, nullptr};
    const traffic &asked = *static_cast<const traffic *>(prepared);
    try {
        if (allocator == CLIENT_ALLOTMENT) {
            allot::arena request_memory(allot::options().name("request"));
            allot::pool cache_memory(allot::options().name("cache"));
            allot::arena_resource transient(request_memory);
            allot::pool_resource lasting(cache_memory);
            cache answers(cached, &lasting);
            for (unsigned time = 0; time < times; ++time) {
                for (const std::string &text : asked.texts) {
                    all.checksum = client_mixed(all.checksum, serve(text, answers, &transient));
                    request_memory.reset();
                    all.operations += 1;
                }
            }
        } else {
            std::pmr::memory_resource *memory = std::pmr::new_delete_resource();
            cache answers(cached, memory);
            for (unsigned time = 0; time < times; ++time) {
                for (const std::string &text : asked.texts) {
                    all.checksum = client_mixed(all.checksum, serve(text, answers, memory));
                    all.operations += 1;
                }
            }
        }
    } catch (const std::exception &error) {
        failure = error.what();
        all.error = failure.c_str();
    }
    return all;
}

const client_program client_pmr = {
    "pmr", "request", "requests parsed, answered and cached by containers of std::pmr", "different paths that are asked for",
    2000, 50, prepare, work_on, dispose,
};

} // namespace

#define program client_pmr
#include "../clients/client_main.h"
