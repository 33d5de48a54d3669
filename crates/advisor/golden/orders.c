// A stock exchange's order book: accounts enter an order, withdraw it, or trade it, in an order without a pattern.

#include <stdio.h>
#include <stdlib.h>
#ifdef ADVISED
#include <allotment.h>
#endif

enum { STEPS = 20000000, PRICES = 256, ACCOUNTS = 1 << 15 };

enum side { BUYER, SELLER };

struct order {
    unsigned id, account, price, quantity;
    enum side side;
    struct order *previous, *next; // of the same price
};

struct level {
    struct order *first, *last;
};

static struct level levels[2][PRICES];
static struct order *open_order[ACCOUNTS];
static int best_buyer, best_seller = PRICES - 1;
static unsigned long traded;

#ifdef ADVISED
static allot_free_list *list;
#endif

static struct order *enter_order(unsigned id, unsigned account, enum side side, unsigned price, unsigned quantity)
{
#ifdef ADVISED
    struct order *order = allot_free_list_alloc(list);
#else
    struct order *order = malloc(sizeof *order);
#endif
    struct level *level = &levels[side][price];
    *order = (struct order){ id, account, price, quantity, side, level->last, NULL };
    if (level->last)
        level->last->next = order;
    else
        level->first = order;
    level->last = order;
    open_order[account] = order;
    if (side == BUYER)
        best_buyer = (int)price > best_buyer ? (int)price : best_buyer;
    else
        best_seller = (int)price < best_seller ? (int)price : best_seller;
    return order;
}

static void remove_order(struct order *order)
{
    struct level *level = &levels[order->side][order->price];
    if (order->previous)
        order->previous->next = order->next;
    else
        level->first = order->next;
    if (order->next)
        order->next->previous = order->previous;
    else
        level->last = order->previous;
    open_order[order->account] = NULL;
#ifdef ADVISED
    allot_free_list_free(list, order);
#else
    free(order);
#endif
}

// Trades while the best buyer pays what the best seller asks.
static void match(void)
{
    for (;;) {
        while (best_buyer > 0 && !levels[BUYER][best_buyer].first)
            best_buyer--;
        while (best_seller < PRICES - 1 && !levels[SELLER][best_seller].first)
            best_seller++;
        struct order *buyer = levels[BUYER][best_buyer].first, *seller = levels[SELLER][best_seller].first;
        if (!buyer || !seller || best_buyer < best_seller)
            return;
        unsigned quantity = buyer->quantity < seller->quantity ? buyer->quantity : seller->quantity;
        traded += (unsigned long)quantity * best_seller;
        buyer->quantity -= quantity;
        seller->quantity -= quantity;
        if (buyer->quantity == 0)
            remove_order(buyer);
        if (seller->quantity == 0)
            remove_order(seller);
    }
}

static unsigned dice(unsigned sides)
{
    static unsigned long long seed = 1;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((seed >> 32) * sides >> 32);
}

int main(int count, char **words)
{
    int steps = count > 1 ? atoi(words[1]) : STEPS;
    unsigned long left = 0;
#ifdef ADVISED
    list = allot_free_list_create(sizeof(struct order), _Alignof(struct order), NULL);
#endif
    for (int i = 0; i < steps; i++) {
        unsigned account = dice(ACCOUNTS);
        if (open_order[account]) {
            remove_order(open_order[account]);
            continue;
        }
        enum side side = account & 1 ? SELLER : BUYER;
        unsigned price = side == BUYER ? 50 + dice(80) : 125 + dice(80);
        enter_order((unsigned)i, account, side, price, dice(100) + 1);
        match();
    }
    for (unsigned i = 0; i < ACCOUNTS; i++)
        left += open_order[i] ? open_order[i]->id * (unsigned long)open_order[i]->quantity : 0;
    printf("%lu %lu\n", traded, left);
    return 0;
}
