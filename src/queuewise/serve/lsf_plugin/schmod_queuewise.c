/* Order of jobs and preference of hosts from Queuewise, for mbschd.
 *
 * Once per scheduling cycle the plugin asks over a unix socket in which order jobs go, and on which hosts first. It waits for the answer
 * no longer than the deadline of the cycle, 2 ms; then, and whenever anything else goes wrong, LSF's own order and hosts stand. A late
 * answer is for a cycle that is over, and is dropped with the connection. mbschd has one thread: so has the plugin.
 *
 * Question: "CYCLE\n". Answer: lines "JOBID HOSTIDX[,HOSTIDX...]\n", the most urgent job first, then "END\n". A job without hosts is to
 * wait in this cycle. Jobs that are not in the answer follow in LSF's order, and hosts that are not named follow in LSF's. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef HAVE_LSSCHED_H
#include "lssched.h"
#include "queuewise_site.h"
#else
#include "lssched_subset.h"
#endif

#define HANDLER_ID 150
#define MOST_ADVICE 65536L   /* jobs in one answer */
#define MOST_HOSTS 64        /* preferred hosts of one job */
#define MOST_ANSWER (8L << 20)
#define SORT_NS 400L         /* that sorting may take per job */
#define RETRY_NS 1000000000L /* after a service could not be reached */
#ifndef DEADLINE_NS
#define DEADLINE_NS 2000000L
#endif

struct advice {
    long job;
    int rank;
    int hosts;
    int host[MOST_HOSTS];
};

static struct advice *advice;   /* of this cycle, sorted by job */
static long num_advice;
static int connection = -1;
static long not_before_ns;      /* when to try the service again */
static long deadline_ns = DEADLINE_NS;
static char *answer;            /* as far as it has been read */
static long answer_size, answer_room;
static long counts[3];          /* cycles that were answered, late, without a service */

static long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void hang_up(void)
{
    if (connection >= 0)
        close(connection);
    connection = -1;
    answer_size = 0;
}

static int wait_for(short events, long until_ns)
{
    for (;;) {
        long left = until_ns - now_ns();
        struct timespec patience = {0, 0};
        struct pollfd poller = {connection, events, 0};
        int ready;
        if (left <= 0)
            return 0;
        patience.tv_sec = left / 1000000000L;
        patience.tv_nsec = left % 1000000000L;
        ready = ppoll(&poller, 1, &patience, NULL);
        if (ready < 0 && errno == EINTR)
            continue;
        return ready > 0;
    }
}

static int dial(void)
{
    const char *path = getenv("QUEUEWISE_SOCKET");
    struct sockaddr_un address;
    if (connection >= 0)
        return 1;
    if (path == NULL || strlen(path) >= sizeof address.sun_path || now_ns() < not_before_ns)
        return 0;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path, strlen(path) + 1);
    connection = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address) != 0) {
        hang_up(); /* a full backlog counts as no service, too */
        not_before_ns = now_ns() + RETRY_NS;
        return 0;
    }
    return 1;
}

static int send_question(long until_ns)
{
    static const char question[] = "CYCLE\n";
    size_t sent = 0;
    while (sent < sizeof question - 1) {
        ssize_t step = send(connection, question + sent, sizeof question - 1 - sent, MSG_NOSIGNAL);
        if (step > 0)
            sent += (size_t)step;
        else if (step < 0 && errno == EINTR)
            continue;
        else if (step < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!wait_for(POLLOUT, until_ns))
                return 0;
        } else
            return 0;
    }
    return 1;
}

static int is_whole(void)
{
    return answer_size >= 4 && memcmp(answer + answer_size - 4, "END\n", 4) == 0
        && (answer_size == 4 || answer[answer_size - 5] == '\n');
}

/* 1: the whole answer is there; 0: too late, or the service is gone. */
static int read_answer(long until_ns)
{
    answer_size = 0;
    while (!is_whole()) {
        ssize_t step;
        if (answer_size + 65536 > answer_room) {
            long room = answer_room ? 2 * answer_room : 262144;
            char *larger = room <= MOST_ANSWER ? realloc(answer, (size_t)room) : NULL;
            if (larger == NULL)
                return 0;
            answer = larger;
            answer_room = room;
        }
        step = recv(connection, answer + answer_size, (size_t)(answer_room - answer_size - 1), 0);
        if (step > 0)
            answer_size += step;
        else if (step == 0)
            return 0;
        else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(POLLIN, until_ns))
                return 0;
        } else if (errno != EINTR)
            return 0;
        if (now_ns() > until_ns)
            return 0;
    }
    answer[answer_size] = '\0';
    return 1;
}

static int by_job(const void *one, const void *other)
{
    long mine = ((const struct advice *)one)->job, its = ((const struct advice *)other)->job;
    return mine < its ? -1 : mine > its;
}

/* Read the lines of an answer. Returns whether all of them are as they should be, and were read in time. */
static int parse_answer(long until_ns)
{
    char *at = answer;
    int sorted = 1;
    num_advice = 0;
    while (strncmp(at, "END\n", 4) != 0) {
        struct advice *one;
        char *end;
        if (num_advice >= MOST_ADVICE || (num_advice % 256 == 0 && now_ns() > until_ns))
            return 0;
        if (num_advice % 1024 == 0) {
            struct advice *larger = realloc(advice, (size_t)(num_advice + 1024) * sizeof *advice);
            if (larger == NULL)
                return 0;
            advice = larger;
        }
        one = &advice[num_advice];
        errno = 0;
        one->job = strtol(at, &end, 10);
        if (end == at || errno || *end != ' ')
            return 0;
        one->hosts = 0;
        at = end + 1;
        while (*at != '\n') {
            long host = strtol(at, &end, 10);
            if (end == at || errno || host < 0 || host > 1000000)
                return 0;
            if (one->hosts < MOST_HOSTS)
                one->host[one->hosts++] = (int)host;
            at = *end == ',' ? end + 1 : end;
            if (*end != ',' && *end != '\n')
                return 0;
        }
        at++;
        one->rank = (int)num_advice++;
        sorted = sorted && (num_advice < 2 || advice[num_advice - 2].job <= one->job);
    }
    if (now_ns() + SORT_NS * num_advice > until_ns && !sorted)
        return 0; /* sorting could not end in time */
    if (!sorted)
        qsort(advice, (size_t)num_advice, sizeof *advice, by_job);
    return 1;
}

static struct advice *advice_for(long job)
{
    struct advice wanted;
    wanted.job = job;
    return num_advice ? bsearch(&wanted, advice, (size_t)num_advice, sizeof *advice, by_job) : NULL;
}

/* The most urgent job of those that LSF has on its list; its own first one if we know none of them. */
static void *next_job(void *queue, void *jobList)
{
    void *best = NULL, *job;
    int best_rank = 0;
    (void)queue;
    for (job = queuewise_next_job(jobList, NULL); job != NULL; job = queuewise_next_job(jobList, job)) {
        struct advice *known = advice_for(queuewise_job_id(job));
        if (known != NULL && (best == NULL || known->rank < best_rank)) {
            best = job;
            best_rank = known->rank;
        }
    }
    return best != NULL ? best : queuewise_next_job(jobList, NULL);
}

struct request {
    long job;
};

static int new_request(void *resreq)
{
    char key[32];
    struct request *data = malloc(sizeof *data);
    if (data == NULL)
        return -1;
    data->job = queuewise_job_of_request(resreq);
    snprintf(key, sizeof key, "queuewise-%ld", data->job); /* a key of its own: every job is decided by itself */
    if (extsched_resreq_setobject(resreq, HANDLER_ID, key, data) != 0) {
        free(data);
        return -1;
    }
    return 0;
}

static void free_request(void *data)
{
    free(data);
}

/* A job that is to wait in this cycle gets no hosts. */
static int match_hosts(void *data, void *candGroupList, void *reason)
{
    struct request *request = data;
    struct advice *known = request == NULL ? NULL : advice_for(request->job);
    struct candHostGroup *group;
    if (known == NULL || known->hosts > 0)
        return 0;
    for (group = extsched_cand_getnextgroup(candGroupList); group != NULL; group = extsched_cand_getnextgroup(NULL))
        while (group->numOfMembers > 0)
            if (queuewise_remove_host(group, group->numOfMembers - 1, reason) != 0)
                return -1;
    return 0;
}

/* Move the preferred hosts to the front of each group, in the order of preference. */
static int sort_hosts(void *data, void *candGroupList, void *reason)
{
    struct request *request = data;
    struct advice *known = request == NULL ? NULL : advice_for(request->job);
    struct candHostGroup *group;
    (void)reason;
    if (known == NULL)
        return 0;
    for (group = extsched_cand_getnextgroup(candGroupList); group != NULL; group = extsched_cand_getnextgroup(NULL)) {
        int front = 0, k, at;
        for (k = 0; k < known->hosts && front < group->numOfMembers; k++) {
            for (at = front; at < group->numOfMembers; at++) {
                if (group->candHost[at].hostIdx == known->host[k]) {
                    struct candHost chosen = group->candHost[at];
                    memmove(&group->candHost[front + 1], &group->candHost[front], (size_t)(at - front) * sizeof chosen);
                    group->candHost[front++] = chosen;
                    break;
                }
            }
        }
    }
    return 0;
}

int sched_version(void *arg)
{
    (void)arg;
    return 1;
}

int sched_init(void *arg)
{
    static RsrcReqHandlerType handler = {new_request, free_request, match_hosts, sort_hosts, NULL, NULL};
    const char *given = getenv("QUEUEWISE_DEADLINE_US");
    long micro = given == NULL ? 0 : strtol(given, NULL, 10);
    (void)arg;
    deadline_ns = micro > 0 && micro <= DEADLINE_NS / 1000 ? micro * 1000 : DEADLINE_NS; /* never longer */
    if (extsched_resreq_registerhandler(HANDLER_ID, &handler) != 0)
        return -1;
    return extsched_order_registerOrderFn4AllQueues(next_job);
}

int sched_pre_proc(void *arg)
{
    long until = now_ns() + deadline_ns;
    (void)arg;
    num_advice = 0;
    if (!dial()) {
        counts[2]++;
        return 0;
    }
    if (send_question(until) && read_answer(until) && parse_answer(until)) {
        counts[0]++;
        return 0;
    }
    num_advice = 0;
    counts[1]++;
    hang_up();
    return 0;
}

int sched_match_limit(void *arg)
{
    (void)arg;
    return 0;
}

int sched_order_alloc(void *arg)
{
    (void)arg;
    return 0;
}

int sched_post_proc(void *arg)
{
    (void)arg;
    return 0;
}

int sched_finalize(void *arg)
{
    (void)arg;
    hang_up();
    free(advice);
    free(answer);
    advice = NULL;
    answer = NULL;
    num_advice = answer_room = 0;
    not_before_ns = 0;
    return 0;
}

/* For tests and monitoring: cycles that were answered (0), late (1), without a service (2). */
long queuewise_cycles(int which)
{
    return which >= 0 && which < 3 ? counts[which] : -1;
}
