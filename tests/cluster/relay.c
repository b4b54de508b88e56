/* SPDX-License-Identifier: MIT */
/* relay DELAY_MS LOSS_PERCENT SEED INTERFACE…: a switch between network interfaces that delays
 * frames and drops some of them, for kernels without netem. The switch learns which address is
 * reached through which interface. A signal ends the program. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { PORTS_MAX = 8, QUEUE = 4096, FRAME_MAX = 1 << 17, ADDRESSES_MAX = 64, AT_ONCE = 64 };

typedef struct frame {
    uint64_t due_ns;
    size_t bytes;
    unsigned char *data;
} frame;

typedef struct port {
    int socket;
    frame queue[QUEUE]; /* frames to be sent */
    unsigned first, count;
} port;

typedef struct address {
    unsigned char octets[ETH_ALEN];
    int port;
} address;

static port ports[PORTS_MAX];
static address addresses[ADDRESSES_MAX];
static int port_count, address_count;
static uint64_t delay_ns, random_state;
static double loss;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double draw(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) / (double)((uint64_t)1 << 53);
}

/* The kernel delivers whole frames of up to 64 KiB. Before each frame it puts a header (struct
 * virtio_net_hdr), which says what the kernel must still do when the frame is sent: compute a
 * checksum, or divide the frame. */
static int open_port(port *p, const char *name)
{
    const int on = 1, room = 16 << 20;
    const struct sockaddr_ll at = {.sll_family = AF_PACKET,
                                   .sll_protocol = htons(ETH_P_ALL),
                                   .sll_ifindex = (int)if_nametoindex(name)};
    const struct packet_mreq all = {.mr_ifindex = at.sll_ifindex, .mr_type = PACKET_MR_PROMISC};
    p->socket = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
    if (p->socket < 0 || setsockopt(p->socket, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0 ||
        setsockopt(p->socket, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0 ||
        bind(p->socket, (const struct sockaddr *)&at, sizeof at) != 0)
        return -1;
    setsockopt(p->socket, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(p->socket, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    return setsockopt(p->socket, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all);
}

/* Returns the index of the port through which an address is reached; −1: the frame is sent to all
 * ports. */
static int port_of(const unsigned char *octets)
{
    for (int i = 0; i < address_count && !(octets[0] & 1); i++)
        if (memcmp(addresses[i].octets, octets, ETH_ALEN) == 0)
            return addresses[i].port;
    return -1;
}

static void learn(const unsigned char *octets, int from)
{
    if (port_of(octets) >= 0 || octets[0] & 1 || address_count == ADDRESSES_MAX)
        return;
    memcpy(addresses[address_count].octets, octets, ETH_ALEN);
    addresses[address_count++].port = from;
}

static void put(port *to, const unsigned char *data, size_t bytes)
{
    if (to->count == QUEUE || draw() * 100 < loss)
        return;
    frame *f = &to->queue[(to->first + to->count) % QUEUE];
    *f = (frame){now_ns() + delay_ns, bytes, malloc(bytes)};
    if (!f->data)
        return;
    memcpy(f->data, data, bytes);
    to->count++;
}

static void take_in(int from)
{
    static unsigned char data[FRAME_MAX];
    for (int i = 0; i < AT_ONCE; i++) {
        const ssize_t bytes = recv(ports[from].socket, data, sizeof data, 0);
        const unsigned char *ether = data + sizeof(struct virtio_net_hdr);
        if (bytes <= (ssize_t)(sizeof(struct virtio_net_hdr) + 2 * ETH_ALEN))
            return; /* there is no frame, or the link is down */
        learn(ether + ETH_ALEN, from);
        const int to = port_of(ether);
        for (int p = 0; p < port_count; p++)
            if (p != from && (to < 0 || p == to))
                put(&ports[p], data, (size_t)bytes);
    }
}

/* Sends the frames that are due. Drops frames that a link does not accept because it is down. */
static void send_due(port *p)
{
    while (p->count > 0 && p->queue[p->first].due_ns <= now_ns()) {
        frame *f = &p->queue[p->first];
        if (send(p->socket, f->data, f->bytes, 0) < 0 && (errno == EAGAIN || errno == ENOBUFS))
            return;
        free(f->data);
        p->first = (p->first + 1) % QUEUE;
        p->count--;
    }
}

static struct timespec next_due(void)
{
    uint64_t wait = 100000000u;
    const uint64_t now = now_ns();
    for (int p = 0; p < port_count; p++) {
        const frame *f = &ports[p].queue[ports[p].first];
        const uint64_t its = f->due_ns > now ? f->due_ns - now : 0;
        if (ports[p].count > 0 && its < wait)
            wait = its;
    }
    return (struct timespec){0, (long)wait};
}

int main(int argc, char **argv)
{
    struct pollfd look[PORTS_MAX];
    port_count = argc - 4;
    if (argc < 6 || port_count > PORTS_MAX)
        return 64;
    delay_ns = (uint64_t)(atof(argv[1]) * 1e6);
    loss = atof(argv[2]);
    random_state = strtoull(argv[3], NULL, 10);
    for (int p = 0; p < port_count; p++) {
        if (open_port(&ports[p], argv[4 + p]) != 0) {
            perror(argv[4 + p]);
            return 71;
        }
        look[p] = (struct pollfd){.fd = ports[p].socket, .events = POLLIN};
    }
    for (;;) {
        const struct timespec wait = next_due();
        ppoll(look, (nfds_t)port_count, &wait, NULL);
        for (int p = 0; p < port_count; p++)
            if (look[p].revents)
                take_in(p);
        for (int p = 0; p < port_count; p++)
            send_due(&ports[p]);
    }
}
