package battery

import (
	"context"
	"errors"
	"fmt"

	"music/integration/evaluate/section"
)

// extras checks the optional interfaces that a system implements, as package section describes
// them.
func extras(ctx context.Context, r *run) error {
	return errors.Join(tokensRise(ctx, r), tryingTells(ctx, r), takingTells(ctx, r), renewingKeeps(ctx, r), forcingEnds(ctx, r))
}

// tokensRise: the fencing token of each section of a key is higher than that of the one before.
func tokensRise(ctx context.Context, r *run) error {
	last := int64(0)
	for i := range 3 {
		err := within(ctx, r.open(), r.key+"token", func(held section.Held) error {
			t, ok := held.(section.Token)
			if ok && i > 0 && t.Token() <= last {
				return fmt.Errorf("token %d after %d", t.Token(), last)
			}
			if ok {
				last = t.Token()
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// tryingTells: TryEnter does not enter a key that is held, and enters one that is free.
func tryingTells(ctx context.Context, r *run) error {
	two, ok := r.open().(section.Trier)
	if !ok {
		return nil
	}
	key := r.key + "try"
	err := within(ctx, r.open(), key, func(section.Held) error {
		_, in, err := two.TryEnter(ctx, key)
		if in {
			return errors.New("tried a key that is held, and entered")
		}
		return err
	})
	if err != nil {
		return err
	}
	held, in, err := two.TryEnter(ctx, key)
	switch {
	case err != nil:
		return fmt.Errorf("try a key that is free: %w", err)
	case !in:
		return errors.New("tried a key that is free, and did not enter")
	}
	return errors.Join(held.Put(ctx, []byte("tried")), held.Leave(ctx))
}

// takingTells: TakeFree enters those keys that are free, and not one that is held.
func takingTells(ctx context.Context, r *run) error {
	two, ok := r.open().(section.Taker)
	if !ok {
		return nil
	}
	taken, free := r.key+"taken", []string{r.key + "free1", r.key + "free2"}
	return within(ctx, r.open(), taken, func(section.Held) error {
		got, err := two.TakeFree(ctx, []string{free[0], taken, free[1]})
		if err != nil {
			return fmt.Errorf("take what is free: %w", err)
		}
		for _, key := range free {
			if got[key] == nil {
				return fmt.Errorf("%s is free, and was not taken", key)
			}
			err = errors.Join(err, got[key].Put(ctx, []byte("taken")), got[key].Leave(ctx))
		}
		if len(got) != len(free) {
			err = errors.Join(err, errors.New("took a key that is held"))
		}
		return err
	})
}

// renewingKeeps: a section that is renewed continues.
func renewingKeeps(ctx context.Context, r *run) error {
	return within(ctx, r.open(), r.key+"renew", func(held section.Held) error {
		n, ok := held.(section.Renewer)
		if !ok {
			return nil
		}
		if err := n.Renew(ctx); err != nil {
			return fmt.Errorf("renew: %w", err)
		}
		return held.Put(ctx, []byte("renewed"))
	})
}

// forcingEnds: Force ends the section of another client, its puts stay, and the next client enters.
func forcingEnds(ctx context.Context, r *run) error {
	two := r.open()
	forcer, ok := two.(section.Forcer)
	if !ok {
		return nil
	}
	key := r.key + "force"
	held, err := r.open().Enter(ctx, key)
	if err != nil {
		return fmt.Errorf("enter: %w", err)
	}
	if err := errors.Join(held.Put(ctx, []byte("of the first")), forcer.Force(ctx, key)); err != nil {
		return fmt.Errorf("put and force: %w", err)
	}
	return within(ctx, two, key, func(held section.Held) error { return wants(ctx, held, "of the first") })
}
