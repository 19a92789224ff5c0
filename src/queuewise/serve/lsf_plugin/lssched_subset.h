/* What the plugin uses of LSF's scheduler interface, in our own words, for builds without LSF's lssched.h: the tests' host program.
 * A site compiles against its own header (-DHAVE_LSSCHED_H -I...), and checks the accessors at the end against it. */
#ifndef QUEUEWISE_LSSCHED_SUBSET_H
#define QUEUEWISE_LSSCHED_SUBSET_H

struct hostSlot;

struct candHost {
    int hostIdx;
    struct hostSlot *hostPtr;
};

struct candHostGroup {
    struct candHostGroup *forw;
    struct candHostGroup *back;
    int maxOfMembers;
    int numOfMembers;
    struct candHost *candHost;
};

typedef int (*RsrcReqHandler_NewFn)(void *resreq);
typedef void (*RsrcReqHandler_FreeFn)(void *data);
typedef int (*RsrcReqHandler_MatchFn)(void *data, void *candGroupList, void *reason);
typedef int (*RsrcReqHandler_SortFn)(void *data, void *candGroupList, void *reason);
typedef int (*RsrcReqHandler_NotifyFn)(void *data, void *job, void *alloc, void *allocLimit, int flag);
typedef int (*RsrcReqHandler_CheckFn)(void *info, void *job, void *alloc);

typedef struct RsrcReqHandlerType {
    RsrcReqHandler_NewFn newFn;
    RsrcReqHandler_FreeFn freeFn;
    RsrcReqHandler_MatchFn matchFn;
    RsrcReqHandler_SortFn sortFn;
    RsrcReqHandler_NotifyFn notifyAllocFn;
    RsrcReqHandler_CheckFn checkAllocFn;
} RsrcReqHandlerType;

int extsched_resreq_registerhandler(int id, RsrcReqHandlerType *handler);
int extsched_resreq_setobject(void *resreq, int id, char *key, void *data);
struct candHostGroup *extsched_cand_getnextgroup(void *candGroupList);
int extsched_order_registerOrderFn4AllQueues(void *(*order)(void *queue, void *jobList));

/* Accessors that depend on the release: the id of the job of a resource request, walking the list of jobs that an order function gets
 * (its first job after NULL), and removing a candidate. In a site's build queuewise_site.h defines them over its own structures. */
long queuewise_job_of_request(void *resreq);
long queuewise_job_id(void *job);
void *queuewise_next_job(void *jobList, void *job);
int queuewise_remove_host(struct candHostGroup *group, int at, void *reason); /* by extsched_cand_removehost */

#endif
