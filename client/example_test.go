package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/kvonce/kvonce/client"
)

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := client.Open(ctx, client.WithEndpoints("127.0.0.1:4101", "127.0.0.1:4102", "127.0.0.1:4103"), client.WithName("orders"))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)

	n, err := c.Increment(ctx, "orders/last", 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("order", n.Value)
}

// A write whose context ended may have taken effect. The client finds out, and Wait tells.
func ExampleUnknownError_Wait() {
	c, err := client.Open(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(context.Background())

	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err = c.Append(ctx, "journal", []byte("paid;"))
	var unknown *client.UnknownError
	if errors.As(err, &unknown) {
		_, err = unknown.Wait(context.Background())
	}
	switch client.OutcomeOf(err) {
	case client.Applied:
		fmt.Println("paid, once")
	case client.NotApplied:
		fmt.Println("not paid, and it never will be:", err)
	default:
		fmt.Println("nobody can tell any more:", err)
	}
}

// Cancel makes an unknown outcome final: either the request has run, or it never will.
func ExampleUnknownError_Cancel() {
	c, err := client.Open(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(context.Background())

	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err = c.Put(ctx, "k", []byte("v"))
	var unknown *client.UnknownError
	if errors.As(err, &unknown) {
		_, err = unknown.Cancel(context.Background())
	}
	if errors.Is(err, client.ErrCancelled) {
		fmt.Println("cancelled in time")
	}
}

func ExampleCommands_Txn() {
	ctx := context.Background()
	c, err := client.Open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)

	r, err := c.Txn().
		If(client.Value("stock/pear").Greater([]byte("0")), client.Absent("orders/17")).
		Then(client.OpPut("orders/17", []byte("pear")), client.OpIncrement("stock/pear", -1)).
		Else(client.OpGet("orders/17")).
		Commit(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ordered:", r.Succeeded)
}

func ExampleCommands_CompareAndSwap() {
	ctx := context.Background()
	c, err := client.Open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)

	_, err = c.CompareAndSwap(ctx, client.Absent("leader"), []byte("me"), client.TTL(time.Minute))
	if errors.Is(err, client.ErrCompareFailed) {
		fmt.Println("somebody else is")
	}
}

func ExampleClient_List() {
	ctx := context.Background()
	c, err := client.Open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)

	for kv, err := range c.List(ctx, "orders/", client.Limit(10)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s = %s (version %d)\n", kv.Key, kv.Value, kv.Version)
	}
}
