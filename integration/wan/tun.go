package wan

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// vnetHeader is the length of the virtio_net_hdr that precedes every packet of a device opened with IFF_VNET_HDR. It is carried
// through untouched, so that 64 KiB of TCP cross in one read and one write and nobody computes a checksum twice.
const vnetHeader = 10

// maxPacket is the length of the longest packet with its header.
const maxPacket = vnetHeader + 65535

// tun is one TUN device.
type tun struct {
	file *os.File
	name string
}

// openTun makes a device.
func openTun(name string) (*tun, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	if err := attach(fd, name); err != nil {
		_ = unix.Close(fd) // the other error says more
		return nil, fmt.Errorf("make device %s: %w", name, err)
	}
	return &tun{file: os.NewFile(uintptr(fd), name), name: name}, nil
}

// attach turns an open file into the device of that name; ErrInUse says that another process has it.
func attach(fd int, name string) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: does another evaluation or test run?", ErrInUse)
	}
	if err != nil {
		return err
	}
	return unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6)
}
