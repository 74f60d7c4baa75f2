// loop is what a client-go program would do in Hanse's place, for benchmarks: it makes so many Jobs on each
// cluster, as many at once as it is told, sees them end by a watch, and prints one JSON object.
//
//	loop --mode create|same --jobs N --job FILE [--secret FILE] --at-once 64 --namespace NS --prefix P KUBECONFIG...
//
// create: each Job is created, and that is all: as kubectl create -f does it, without a process for each.
// same: the writes that Hanse makes of one run: Secret, Job (its pods gated and held), the Job's admission under
// the resourceVersion that was read, the pod's gate, and once it has ended the Secret's deletion, the end at the
// Job, the Job's deletion, the pod's deletion, its finalizer. Neither looks for anything that could have gone wrong.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

var (
	mode      = flag.String("mode", "create", "create or same")
	jobs      = flag.Int("jobs", 1000, "on all clusters together")
	atOnce    = flag.Int("at-once", 64, "requests under way at each cluster")
	namespace = flag.String("namespace", "default", "")
	prefix    = flag.String("prefix", "loop", "of the Jobs' names")
	jobFile   = flag.String("job", "", "a Job as JSON; its name is replaced")
	secFile   = flag.String("secret", "", "a Secret as JSON; its name is replaced")
	requests  atomic.Int64
	again     atomic.Int64
	ctx       = context.Background()
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(path string, into any) {
	text, err := os.ReadFile(path)
	must(err)
	must(json.Unmarshal(text, into))
}

type run struct {
	job             *batch.Job
	pod             *core.Pod
	admitted, ended bool
	busy            bool
}

type cluster struct {
	kube    *kubernetes.Clientset
	mine    int
	slots   chan struct{}
	lock    sync.Mutex
	runs    map[string]*run
	made    sync.WaitGroup
	over    sync.WaitGroup // Jobs that have ended
	cleaned sync.WaitGroup // of which nothing is left but the Job
}

func (c *cluster) ask(f func() error) error {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	for {
		requests.Add(1)
		err := f()
		if err == nil || !(errors.IsTooManyRequests(err) || errors.IsServerTimeout(err) || errors.IsTimeout(err)) {
			return err
		}
		again.Add(1)
		time.Sleep(200 * time.Millisecond)
	}
}

func (c *cluster) make(name string, job *batch.Job, secret *core.Secret) {
	defer c.made.Done()
	if secret != nil {
		s := secret.DeepCopy()
		s.Name, s.Namespace = name, *namespace
		must(c.ask(func() error { _, err := c.kube.CoreV1().Secrets(*namespace).Create(ctx, s, meta.CreateOptions{}); return err }))
	}
	j := job.DeepCopy()
	j.Name, j.Namespace = name, *namespace
	must(c.ask(func() error { _, err := c.kube.BatchV1().Jobs(*namespace).Create(ctx, j, meta.CreateOptions{}); return err }))
}

func (c *cluster) patchJob(name, text string) error {
	return c.ask(func() error {
		_, err := c.kube.BatchV1().Jobs(*namespace).Patch(ctx, name, types.MergePatchType, []byte(text), meta.PatchOptions{})
		return err
	})
}

func (c *cluster) patchPod(name, text string) error {
	return c.ask(func() error {
		_, err := c.kube.CoreV1().Pods(*namespace).Patch(ctx, name, types.MergePatchType, []byte(text), meta.PatchOptions{})
		return err
	})
}

func (c *cluster) begin(r *run, job *batch.Job, pod *core.Pod) {
	err := c.patchJob(job.Name, fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{"hanse.dev/admitted":%q}}}`,
		job.UID, job.ResourceVersion, pod.UID))
	c.lock.Lock()
	r.busy, r.admitted = false, err == nil
	c.lock.Unlock()
	if errors.IsConflict(err) {
		again.Add(1)
		c.look(r)
		return
	}
	must(err)
	must(c.patchPod(pod.Name, fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"schedulingGates":null}}`, pod.UID)))
}

func (c *cluster) clean(job *batch.Job, pod *core.Pod) {
	background, now := meta.DeletePropagationBackground, int64(0)
	must(c.ask(func() error { return c.kube.CoreV1().Secrets(*namespace).Delete(ctx, job.Name, meta.DeleteOptions{}) }))
	must(c.patchJob(job.Name, fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{"hanse.dev/end":"{\"state\":\"ended\"}"}}}`, job.UID)))
	must(c.ask(func() error {
		return c.kube.BatchV1().Jobs(*namespace).Delete(ctx, job.Name, meta.DeleteOptions{PropagationPolicy: &background})
	}))
	must(c.ask(func() error {
		return c.kube.CoreV1().Pods(*namespace).Delete(ctx, pod.Name, meta.DeleteOptions{GracePeriodSeconds: &now})
	}))
	must(c.patchPod(pod.Name, `{"metadata":{"finalizers":null}}`))
	c.cleaned.Done()
}

// look does the next thing that the run's objects ask for.
func (c *cluster) look(r *run) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if *mode != "same" || r.job == nil || r.pod == nil || r.busy {
		return
	}
	if !r.admitted && len(r.pod.Spec.SchedulingGates) > 0 {
		r.busy = true
		go c.begin(r, r.job, r.pod)
	}
	if r.admitted && !r.ended && r.pod.Status.Phase == core.PodSucceeded {
		r.ended = true
		c.over.Done()
		go c.clean(r.job, r.pod)
	}
}

func (c *cluster) of(name string) *run {
	r := c.runs[name]
	if r == nil {
		r = &run{}
		c.runs[name] = r
	}
	return r
}

func newer(had *batch.Job, has *batch.Job) bool {
	a, b := "", has.ResourceVersion
	if had != nil {
		a = had.ResourceVersion
	}
	return len(a) < len(b) || (len(a) == len(b) && a < b)
}

func (c *cluster) jobSeen(j *batch.Job) {
	if !strings.HasPrefix(j.Name, *prefix+"-") {
		return
	}
	c.lock.Lock()
	r := c.of(j.Name)
	if newer(r.job, j) {
		r.job = j
	}
	if *mode == "create" && !r.ended {
		for _, x := range j.Status.Conditions {
			if x.Type == batch.JobComplete && x.Status == core.ConditionTrue {
				r.ended = true
				c.over.Done()
			}
		}
	}
	c.lock.Unlock()
	c.look(r)
}

func (c *cluster) podSeen(p *core.Pod) {
	name := p.Labels["batch.kubernetes.io/job-name"]
	if !strings.HasPrefix(name, *prefix+"-") {
		return
	}
	c.lock.Lock()
	r := c.of(name)
	r.pod = p
	c.lock.Unlock()
	c.look(r)
}

// follow watches anew where a watch ends; ours are too short to expire.
func (c *cluster) follow(pods bool) {
	since := "0"
	for {
		var w watch.Interface
		var err error
		options := meta.ListOptions{ResourceVersion: since, AllowWatchBookmarks: true}
		if pods {
			w, err = c.kube.CoreV1().Pods(*namespace).Watch(ctx, options)
		} else {
			w, err = c.kube.BatchV1().Jobs(*namespace).Watch(ctx, options)
		}
		must(err)
		for e := range w.ResultChan() {
			switch o := e.Object.(type) {
			case *batch.Job:
				since = o.ResourceVersion
				if e.Type != watch.Bookmark && e.Type != watch.Deleted {
					c.jobSeen(o)
				}
			case *core.Pod:
				since = o.ResourceVersion
				if e.Type != watch.Bookmark && e.Type != watch.Deleted {
					c.podSeen(o)
				}
			default:
				must(fmt.Errorf("a watch has ended: %v", e.Object))
			}
		}
	}
}

func connect(path string) *kubernetes.Clientset {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	must(err)
	config.QPS = -1 // no limit of its own
	config.ContentType = "application/vnd.kubernetes.protobuf"
	kube, err := kubernetes.NewForConfig(config)
	must(err)
	return kube
}

func main() {
	flag.Parse()
	var job batch.Job
	var secret *core.Secret
	read(*jobFile, &job)
	if *secFile != "" {
		secret = &core.Secret{}
		read(*secFile, secret)
	}
	var all []*cluster
	for i, path := range flag.Args() {
		mine := *jobs / flag.NArg()
		if i < *jobs%flag.NArg() {
			mine++
		}
		c := &cluster{kube: connect(path), mine: mine, slots: make(chan struct{}, *atOnce), runs: map[string]*run{}}
		c.made.Add(mine)
		c.over.Add(mine)
		if *mode == "same" {
			c.cleaned.Add(mine)
			go c.follow(true)
		}
		go c.follow(false)
		all = append(all, c)
	}
	time.Sleep(time.Second) // the watches are there
	begin := time.Now()
	for _, c := range all {
		names := make(chan string, c.mine)
		for i := 0; i < c.mine; i++ {
			names <- fmt.Sprintf("%s-%d", *prefix, i)
		}
		close(names)
		for i := 0; i < *atOnce; i++ {
			go func() {
				for name := range names {
					c.make(name, &job, secret)
				}
			}()
		}
	}
	since := func(what func(c *cluster) *sync.WaitGroup) float64 {
		for _, c := range all {
			what(c).Wait()
		}
		return time.Since(begin).Seconds()
	}
	made := since(func(c *cluster) *sync.WaitGroup { return &c.made })
	over := since(func(c *cluster) *sync.WaitGroup { return &c.over })
	cleaned := since(func(c *cluster) *sync.WaitGroup { return &c.cleaned })
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"made_s": made, "over_s": over, "cleaned_s": cleaned,
		"requests": requests.Load(), "again": again.Load()})
}

