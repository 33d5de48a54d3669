/* Lua with one pool per state: all memory that the interpreter allocates for a script comes from
 * the state's pool. Lua passes the size of a block when it frees it.
 *
 *     cc -O2 lua.c -o lua $(pkg-config --cflags --libs allotment lua5.4)
 */

#include "client.h"

#include <allotment.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------- */

/* The alignment of Lua's own objects (LUAI_MAXALIGN). */
typedef union aligned {
    lua_Number number;
    double real;
    void *pointer;
    lua_Integer integer;
    long whole;
} aligned;
enum { ALIGN = _Alignof(aligned) };

static void *from_pool(void *context, void *block, size_t old_size, size_t new_size)
{
    allot_pool *pool = context;
    if (block == NULL) {
        /* For a new object, `old_size` is the type of the object. */
        return new_size == 0 ? NULL : allot_pool_try_alloc(pool, new_size, ALIGN);
    }
    if (new_size == 0) {
        allot_pool_free_sized(pool, block, old_size, ALIGN);
        return NULL;
    }
    return allot_pool_try_resize(pool, block, old_size, new_size, ALIGN);
}

/* The same as in luaL_newstate(). */
static void *from_malloc(void *context, void *block, size_t old_size, size_t new_size)
{
    (void)context;
    (void)old_size;
    if (new_size == 0) {
        free(block);
        return NULL;
    }
    return realloc(block, new_size);
}

/* ---- the script ------------------------------------------------------------------------------ */

/* A typical report: it parses text into records with methods, groups and sorts them, and writes
 * text. */
static const char SCRIPT[] =
    "local source, most = ...\n"
    "local Account = {}\n"
    "Account.__index = Account\n"
    "function Account.new(name) return setmetatable({name = name, total = 0, entries = {}, tags = {}}, Account) end\n"
    "function Account:add(entry)\n"
    "  self.total = self.total + entry.cents\n"
    "  self.entries[#self.entries + 1] = entry\n"
    "  for tag in entry.tags:gmatch('%a+') do self.tags[tag] = (self.tags[tag] or 0) + 1 end\n"
    "end\n"
    "\n"
    "-- Lines into records.\n"
    "local records = {}\n"
    "for line in source:gmatch('[^\\n]+') do\n"
    "  local name, city, cents, tags = line:match('^(%S+) (%S+) (%d+) (.*)$')\n"
    "  records[#records + 1] = {name = name, city = city, cents = tonumber(cents), tags = tags,\n"
    "    key = city .. '/' .. name, place = {city = city, line = #records}}\n"
    "end\n"
    "\n"
    "-- A chain of steps, each a closure over what it needs.\n"
    "local function where(field, value) return function(record) return record[field] ~= value end end\n"
    "local function at_least(cents) return function(record) return record.cents >= cents end end\n"
    "local function labelled(prefix) return function(record)\n"
    "  return {cents = record.cents, key = record.key, tags = record.tags, label = prefix .. ':' .. record.name,\n"
    "    note = function() return record.place.city .. '#' .. record.place.line end}\n"
    "end end\n"
    "local function each(list, ...)\n"
    "  local kept, steps = {}, {...}\n"
    "  for _, item in ipairs(list) do\n"
    "    local good = true\n"
    "    for _, step in ipairs(steps) do\n"
    "      local result = step(item)\n"
    "      if not result then good = false break end\n"
    "      if result ~= true then item = result end\n"
    "    end\n"
    "    if good then kept[#kept + 1] = item end\n"
    "  end\n"
    "  return kept\n"
    "end\n"
    "\n"
    "local kept = each(records, where('city', 'nowhere'), at_least(100), labelled('r'))\n"
    "local accounts = {}\n"
    "for _, item in ipairs(kept) do\n"
    "  local account = accounts[item.key]\n"
    "  if not account then account = Account.new(item.label) accounts[item.key] = account end\n"
    "  account:add(item)\n"
    "end\n"
    "\n"
    "-- In order, as text.\n"
    "local list = {}\n"
    "for key, account in pairs(accounts) do list[#list + 1] = {key = key, account = account} end\n"
    "table.sort(list, function(one, other)\n"
    "  if one.account.total ~= other.account.total then return one.account.total > other.account.total end\n"
    "  return one.key < other.key\n"
    "end)\n"
    "local lines = {}\n"
    "for place, item in ipairs(list) do\n"
    "  local tags = {}\n"
    "  for tag, count in pairs(item.account.tags) do tags[#tags + 1] = tag .. '=' .. count end\n"
    "  table.sort(tags)\n"
    "  lines[#lines + 1] = place .. '. ' .. item.key .. ' ' .. item.account.total .. ' (' .. table.concat(tags, ' ') .. ') '\n"
    "    .. item.account.entries[1].note()\n"
    "  if place == most then break end\n"
    "end\n"
    "return table.concat(lines, '\\n'), #records\n";

/* The input: one record per line. */
typedef struct source {
    char *text;
    size_t length;
} source;

static const char *const TAGS[] = {"new", "paid", "late", "gift", "bulk", "return", "export"};
static const char *const CITIES[] = {"kiel", "porto", "gdansk", "nowhere", "cork", "bergen", "vigo", "turku"};

static void *prepare(unsigned records)
{
    enum { LONGEST = 96 };
    source *made = (source *)malloc(sizeof *made);
    char *text = (char *)malloc((size_t)records * LONGEST + 1);
    if (made == NULL || text == NULL) {
        free(made);
        free(text);
        return NULL;
    }
    uint64_t state = 11;
    size_t at = 0;
    for (unsigned record = 0; record < records; record++) {
        int length = snprintf(text + at, LONGEST, "name%u %s %u %s %s\n", client_random(&state) % (records / 4 + 1),
                              CITIES[client_random(&state) % 8], client_random(&state) % 100000,
                              TAGS[client_random(&state) % 7], TAGS[client_random(&state) % 7]);
        at += (size_t)length;
    }
    *made = (source){text, at};
    return made;
}

static void dispose(void *prepared)
{
    source *made = prepared;
    free(made->text);
    free(made);
}

/* ---- the work -------------------------------------------------------------------------------- */

static uint64_t sum_of(const char *text, size_t length)
{
    uint64_t sum = length;
    for (size_t at = 0; at < length; at++) {
        sum = client_mixed(sum, (unsigned char)text[at]);
    }
    return sum;
}

/* All calls that may raise a Lua error. */
static int report(lua_State *state)
{
    const source *input = lua_touserdata(state, 1);
    client_result *result = lua_touserdata(state, 2);
    luaL_openlibs(state);
    if (luaL_loadbuffer(state, SCRIPT, sizeof SCRIPT - 1, "=report") != LUA_OK) {
        return lua_error(state);
    }
    lua_pushlstring(state, input->text, input->length);
    lua_pushinteger(state, 200);
    lua_call(state, 2, 2);
    size_t length = 0;
    const char *text = lua_tolstring(state, -2, &length);
    result->checksum = sum_of(text, length);
    result->operations = (uint64_t)lua_tointeger(state, -1);
    return 0;
}

static client_result one_state(lua_State *state, const source *input)
{
    client_result result = {0, 0, NULL};
    lua_pushcfunction(state, report);
    lua_pushlightuserdata(state, (void *)(uintptr_t)input);
    lua_pushlightuserdata(state, &result);
    if (lua_pcall(state, 2, 0, 0) != LUA_OK) {
        static _Thread_local char error[128];
        const char *message = lua_tostring(state, -1);
        snprintf(error, sizeof error, "%s", message != NULL ? message : "an error that is no text");
        result.error = error;
    }
    return result;
}

static client_result work_on(client_allocator allocator, const void *prepared, unsigned times)
{
    client_result all = {0, 1, NULL};
    for (unsigned time = 0; time < times && all.error == NULL; time++) {
        allot_pool *pool = NULL;
        lua_State *state;
        if (allocator == CLIENT_ALLOTMENT) {
            pool = allot_pool_try_create(NULL);
            if (pool == NULL) {
                all.error = allot_last_error()->message;
                return all;
            }
            state = lua_newstate(from_pool, pool);
        } else {
            state = lua_newstate(from_malloc, NULL);
        }
        if (state == NULL) {
            all.error = "no memory for a state";
        } else {
            client_result one = one_state(state, (const source *)prepared);
            lua_close(state);
            all.operations += one.operations;
            all.checksum = client_mixed(all.checksum, one.checksum);
            all.error = one.error;
        }
        allot_pool_destroy(pool);
    }
    return all;
}

const client_program client_lua = {
    "lua", "record", "a Lua script that makes records, closures, groups and a report of a text; a new state each time",
    "records in the text", 20000, 10, prepare, work_on, dispose,
};

#ifndef CLIENT_WITHOUT_MAIN
#define program client_lua
#include "client_main.h"
#endif
