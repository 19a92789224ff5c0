/* Plays mbschd for a plugin: loads it, hands it jobs and hosts cycle by cycle as they come on stdin, and prints what was picked.
 *
 * Input per cycle: "CYCLE JOBS HOSTS", then JOBS lines "ID SLOTS" in LSF's order and HOSTS lines "INDEX FREE". A job goes whole to the
 * first host in the order of preference that has room. Output: lines "PICK ID HOST", then "DONE NANOSECONDS ANSWERED LATE ALONE", where
 * the time is that of sched_pre_proc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lssched_subset.h"

struct job {
    long id;
    int slots, gone;
    struct job *next;
    void *data;
};

struct hostSlot {
    int free;
};

static RsrcReqHandlerType *handler;
static void *(*order)(void *, void *);
static struct candHostGroup group;
static int asked;
static void *attached;

int extsched_resreq_registerhandler(int id, RsrcReqHandlerType *given)
{
    handler = given;
    return id >= 100 && id <= 199 ? 0 : -1;
}

int extsched_resreq_setobject(void *resreq, int id, char *key, void *data)
{
    (void)resreq;
    attached = data;
    return id >= 100 && key[0] != '\0' ? 0 : -1;
}

struct candHostGroup *extsched_cand_getnextgroup(void *list)
{
    asked = list != NULL ? 0 : asked;
    return asked++ == 0 ? &group : NULL;
}

int extsched_order_registerOrderFn4AllQueues(void *(*given)(void *, void *))
{
    order = given;
    return 0;
}

long queuewise_job_of_request(void *resreq)
{
    return ((struct job *)resreq)->id;
}

long queuewise_job_id(void *job)
{
    return ((struct job *)job)->id;
}

void *queuewise_next_job(void *list, void *job)
{
    struct job *next = job == NULL ? *(struct job **)list : ((struct job *)job)->next;
    while (next != NULL && next->gone)
        next = next->next;
    return next;
}

int queuewise_remove_host(struct candHostGroup *from, int at, void *reason)
{
    (void)reason;
    memmove(&from->candHost[at], &from->candHost[at + 1], (size_t)(from->numOfMembers - 1 - at) * sizeof *from->candHost);
    from->numOfMembers--;
    return 0;
}

static void *need(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return found;
}

static void place(struct job *job, struct candHost *hosts, int number)
{
    int k;
    memcpy(group.candHost, hosts, (size_t)number * sizeof *hosts);
    group.numOfMembers = group.maxOfMembers = number;
    asked = 0;
    if (handler->matchFn != NULL)
        handler->matchFn(job->data, &group, NULL);
    asked = 0;
    handler->sortFn(job->data, &group, NULL);
    for (k = 0; k < group.numOfMembers; k++) {
        if (group.candHost[k].hostPtr->free >= job->slots) {
            group.candHost[k].hostPtr->free -= job->slots;
            printf("PICK %ld %d\n", job->id, group.candHost[k].hostIdx);
            return;
        }
    }
}

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    int (*init)(void *), (*before)(void *), (*finish)(void *), num_jobs, num_hosts, k;
    long (*cycles)(int);
    if (library == NULL) {
        fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "give the plugin");
        return 2;
    }
    *(void **)&init = need(library, "sched_init");
    *(void **)&before = need(library, "sched_pre_proc");
    *(void **)&finish = need(library, "sched_finalize");
    *(void **)&cycles = need(library, "queuewise_cycles");
    if (init(NULL) != 0)
        return 3;
    while (scanf(" CYCLE %d %d", &num_jobs, &num_hosts) == 2) {
        struct job *jobs = calloc((size_t)num_jobs + 1, sizeof *jobs), *first = num_jobs ? jobs : NULL, *job;
        struct hostSlot *slots = calloc((size_t)num_hosts + 1, sizeof *slots);
        struct candHost *hosts = calloc((size_t)num_hosts + 1, sizeof *hosts);
        struct timespec began, ended;
        group.candHost = calloc((size_t)num_hosts + 1, sizeof *hosts);
        for (k = 0; k < num_jobs; k++) {
            if (scanf("%ld %d", &jobs[k].id, &jobs[k].slots) != 2)
                return 4;
            jobs[k].next = k + 1 < num_jobs ? &jobs[k + 1] : NULL;
        }
        for (k = 0; k < num_hosts; k++) {
            if (scanf("%d %d", &hosts[k].hostIdx, &slots[k].free) != 2)
                return 4;
            hosts[k].hostPtr = &slots[k];
        }
        clock_gettime(CLOCK_MONOTONIC, &began);
        before(NULL);
        clock_gettime(CLOCK_MONOTONIC, &ended);
        for (k = 0; k < num_jobs; k++) {
            if (handler->newFn(&jobs[k]) != 0)
                return 5;
            jobs[k].data = attached;
        }
        while ((job = order(NULL, &first)) != NULL) {
            job->gone = 1;
            place(job, hosts, num_hosts);
        }
        for (k = 0; k < num_jobs; k++)
            handler->freeFn(jobs[k].data);
        printf("DONE %ld %ld %ld %ld\n", (ended.tv_sec - began.tv_sec) * 1000000000L + ended.tv_nsec - began.tv_nsec, cycles(0), cycles(1), cycles(2));
        fflush(stdout);
        free(jobs);
        free(slots);
        free(hosts);
        free(group.candHost);
    }
    finish(NULL);
    dlclose(library);
    return 0;
}
